//! What the service does for its log now and then: old events are dropped, and what the log has to say is logged.

use crate::config::Retention;
use segue_domain::log::Expiry;
use segue_domain::store::Store;
use std::time::Duration;
use time::OffsetDateTime;

/// How often the log is asked for notices.
const NOTICES_PERIOD: Duration = Duration::from_mins(1);
/// Every how many of these periods old events are dropped; the first time after one.
const RETENTION_PERIODS: u32 = 60;

/// Goes on until the task is aborted.
pub async fn run(store: Store, retention: Retention) {
    let mut ticks = tokio::time::interval(NOTICES_PERIOD);
    for round in 0_u32.. {
        ticks.tick().await;
        for notice in store.log().take_notices() {
            tracing::warn!("{notice}");
        }
        if round % RETENTION_PERIODS == 1 {
            drop_expired(&store, &retention).await;
        }
    }
}

async fn drop_expired(store: &Store, retention: &Retention) {
    let expiries = expiries(retention, OffsetDateTime::now_utc());
    let (mut total, mut after) = (0, None);
    loop {
        let (log, expiries) = (store.log().clone(), expiries.clone());
        let dropped = tokio::task::spawn_blocking(move || log.drop_expired(&expiries, after)).await;
        let dropped = dropped.map_err(|error| error.to_string());
        match dropped.and_then(|dropped| dropped.map_err(|error| error.to_string())) {
            Ok(dropped) => {
                total += dropped.records;
                after = dropped.more_after;
            }
            Err(reason) => {
                tracing::warn!("old events are not dropped: {reason}");
                after = None;
            }
        }
        if after.is_none() {
            break;
        }
    }
    if total > 0 {
        tracing::info!("dropped {total} old events");
    }
}

/// From ages to instants; types without an age are kept.
fn expiries(retention: &Retention, now: OffsetDateTime) -> Vec<Expiry> {
    let expiry = |(kind, age): (&String, &crate::config::Interval)| {
        let age = age.unless_zero()?;
        Some(Expiry { kind: kind.clone(), before: now.checked_sub(age.try_into().ok()?)? })
    };
    retention.0.iter().filter_map(expiry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use time::macros::datetime;

    #[test]
    fn metrics_health_and_allocation_go_after_seven_days() {
        let retention = Config::load(None, [], []).unwrap().settings.log.retention;
        let now = datetime!(2026-11-20 12:00 UTC);
        let before = datetime!(2026-11-13 12:00 UTC);
        let expected =
            ["allocation", "health", "metrics"].map(|kind| Expiry { kind: kind.into(), before });
        assert_eq!(expiries(&retention, now), expected);
    }

    #[test]
    fn every_type_can_have_an_age_but_those_that_stay() {
        let load = |key: &str, value: &str| {
            let setting = crate::config::Setting::flag(key, serde_json::json!(value));
            Config::load(None, [], [setting])
        };
        let retention = load("log.retention.note", "1 h").unwrap().settings.log.retention;
        assert_eq!(expiries(&retention, OffsetDateTime::UNIX_EPOCH).len(), 4);
        let retention = load("log.retention.metrics", "0 s").unwrap().settings.log.retention;
        assert_eq!(expiries(&retention, OffsetDateTime::UNIX_EPOCH).len(), 2);
        for (key, value, reason) in [
            ("log.retention.archive", "1 h", "events of type 'archive' are never dropped"),
            ("log.retention.note", "soon", "'soon' is no duration"),
            ("log.retentions.note", "1 h", "unknown key 'log.retentions.note'"),
        ] {
            let refused = load(key, value).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
