//! Tables that say who takes the next request, and the one after, so that shares are exact at all times: a server of a
//! backend, or the backend of a route.
//!
//! HAProxy's own round robin finishes a cycle with its old weights before new ones are exact. A table is replaced as
//! a whole instead, and a counter goes on through it. Where there is no table, or the server of a slot takes no
//! requests, round robin decides. Pure: it knows the format of HAProxy's map files, and nothing of sockets.

use super::model::hex;
use serde::Serialize;
use sha1::{Digest, Sha1};
use std::fmt::Write;

/// The folder of the map files, in HAProxy's directory.
pub(super) const FOLDER: &str = "slots";
/// The longest table; what takes a longer one is left to round robin. A table of this length is replaced in about
/// 50 ms.
const PERIOD_MAX: u128 = 5000;

/// Stands in a preference for requests that are spread like all others.
const LIKE_OTHERS: &str = "-";

/// The table of one backend or frontend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Table {
    /// The map file, relative to HAProxy's directory; also what a running HAProxy calls the map.
    pub(super) file: String,
    /// Names of servers or backends in the order of requests; none for round robin.
    slots: Vec<String>,
    /// Names of those that a cookie may ask for.
    kept: Vec<String>,
    /// What the conditions prefer, in their order.
    pub(super) preferences: Vec<Preference>,
}

/// Where requests go that match a condition, in the order of these requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Preference {
    /// Names of servers or backends, and [`LIKE_OTHERS`]; none when there is nobody.
    slots: Vec<String>,
    /// Whether it holds for clients, too, that a cookie binds: nothing was left to the turn.
    firm: bool,
}

impl Table {
    /// The table of the backend `name` for routes given as weight and servers that take requests.
    pub(super) fn of(name: &str, routes: &[(u32, Vec<&str>)]) -> Self {
        let servers =
            routes.iter().filter(|(weight, _)| *weight > 0).map(|(_, servers)| servers.len());
        // One server alone takes everything anyway.
        let slots = if servers.sum::<usize>() < 2 { Vec::new() } else { slots(routes) };
        Self::with(name, slots, Vec::new())
    }

    /// The table of the frontend `name` for routes given as weight and backend. There is no round robin over backends, so
    /// that proportions that are too fine are rounded.
    pub(super) fn of_routes(name: &str, routes: &[(u32, Vec<&str>)]) -> Self {
        let taking: Vec<&(u32, Vec<&str>)> =
            routes.iter().filter(|(weight, names)| *weight > 0 && !names.is_empty()).collect();
        let weights = taking.iter().map(|(weight, _)| *weight).collect::<Vec<_>>();
        let parts = parts(&weights, PERIOD_MAX).into_iter().zip(&taking);
        let rounded: Vec<_> = parts.map(|(part, (_, names))| (part, names.clone())).collect();
        let kept = routes.iter().flat_map(|(_, names)| names.clone()).collect();
        Self::with(name, slots(&rounded), kept)
    }

    /// The table of the backend `name` where cookies bind to servers: those that may keep their clients.
    pub(super) fn of_kept(name: &str, servers: Vec<&str>) -> Self {
        Self::with(name, Vec::new(), servers)
    }

    fn with(name: &str, slots: Vec<&str>, kept: Vec<&str>) -> Self {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        Self {
            file: format!("{FOLDER}/{name}.map"),
            slots: owned(slots),
            kept: owned(kept),
            preferences: Vec::new(),
        }
    }

    /// Drops all but the name.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.kept.clear();
        self.preferences.clear();
    }

    /// What tells this table, of this backend, from all others.
    pub(super) fn digest(&self) -> String {
        let content = self.content().join("\n");
        format!("{}/{}", self.file, hex(&Sha1::digest(content.as_bytes())))
    }

    /// The lines of the map file, of which the last tells that all others are there.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = self.content();
        lines.push(format!("digest {}", self.digest()));
        lines
    }

    /// Keys with a dot belong to the condition with the number before it, counted from 1.
    fn content(&self) -> Vec<String> {
        let slots = self.slots.iter().enumerate().map(|(slot, name)| format!("{slot} {name}"));
        // No cookie can name a slot: its key ends differently.
        let kept = self.kept.iter().map(|name| format!("{name}@ {name}"));
        let mut lines: Vec<String> = slots.chain(kept).collect();
        lines.push(format!("period {}", self.slots.len()));
        for (preference, number) in self.preferences.iter().zip(1..) {
            let slots = preference.slots.iter().enumerate();
            lines.extend(slots.map(|(slot, name)| format!("{number}.{slot} {name}")));
            if !preference.slots.is_empty() {
                lines.push(format!("{number}.period {}", preference.slots.len()));
            }
            if preference.firm {
                lines.push(format!("{number}.firm 1"));
            }
        }
        lines
    }

    /// The map file.
    pub(super) fn text(&self) -> String {
        self.lines().iter().fold(String::new(), |mut text, line| {
            writeln!(text, "{line}").expect("a text takes whatever is written to it");
            text
        })
    }
}

impl Preference {
    /// Gives `strength` of a hundred requests to `ways`, given as weight and names of those that take requests.
    pub(super) fn of(strength: u8, ways: &[(u32, Vec<&str>)]) -> Self {
        let ways: Vec<&(u32, Vec<&str>)> =
            ways.iter().filter(|(weight, names)| *weight > 0 && !names.is_empty()).collect();
        if ways.is_empty() || strength == 0 {
            return Self::default();
        }
        // Proportions that are too fine for a table are rounded, so that a round fits.
        let hundredths = 100 / gcd(u128::from(strength), 100);
        let weights = ways.iter().map(|(weight, _)| *weight).collect::<Vec<_>>();
        let parts = parts(&weights, PERIOD_MAX / hundredths);
        let given: u32 = parts.iter().sum();
        let (strength, rest) = (u32::from(strength), 100 - u32::from(strength));
        let mut routes: Vec<(u32, &[&str])> = parts
            .into_iter()
            .zip(&ways)
            .map(|(part, (_, names))| (part * strength, names.as_slice()))
            .collect();
        if rest > 0 {
            routes.push((given * rest, &[LIKE_OTHERS]));
        }
        // Where even turns of all servers take too long a table, those of one route share unevenly.
        let (round, rounds) = lengths(&routes).unwrap_or_else(|| {
            let divisor =
                routes.iter().fold(0, |divisor, (weight, _)| gcd(divisor, (*weight).into()));
            let round = routes.iter().map(|(weight, _)| u128::from(*weight) / divisor).sum();
            (round, (PERIOD_MAX / round).max(1))
        });
        let slots = rotation(&routes, round, rounds);
        Self { slots: slots.into_iter().map(str::to_owned).collect(), firm: rest == 0 }
    }
}

/// Whole numbers in the proportions of `weights`, none of which is 0, that add up to at most `sum_max`: exact where that
/// is possible, else the nearest, and at least 1 each.
fn parts(weights: &[u32], sum_max: u128) -> Vec<u32> {
    let divisor = weights.iter().fold(0, |divisor, weight| gcd(divisor, u128::from(*weight)));
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let spare = sum_max.saturating_sub(weights.len() as u128);
    let part = |weight: &u32| {
        let weight = u128::from(*weight);
        let part = if sum / divisor <= sum_max {
            weight / divisor
        } else {
            // Rounded up at most once each, for which there is room.
            ((weight * spare + sum / 2) / sum).max(1)
        };
        u32::try_from(part).expect("no part is above the weight, or the sum")
    };
    weights.iter().map(part).collect()
}

/// Smooth weighted round robin over the routes, repeated until the servers of each, in turn, come out even. Every
/// window as long as the sum of the reduced weights is exact.
fn slots<'a>(routes: &[(u32, Vec<&'a str>)]) -> Vec<&'a str> {
    let routes: Vec<(u32, &[&'a str])> = routes
        .iter()
        .filter(|(weight, servers)| *weight > 0 && !servers.is_empty())
        .map(|(weight, servers)| (*weight, servers.as_slice()))
        .collect();
    if routes.is_empty() {
        return Vec::new();
    }
    let Some((round, rounds)) = lengths(&routes) else { return Vec::new() };
    rotation(&routes, round, rounds)
}

/// So many `rounds` of smooth weighted round robin, each as long as the sum of the reduced weights.
fn rotation<'a>(routes: &[(u32, &[&'a str])], round: u128, rounds: u128) -> Vec<&'a str> {
    let divisor = routes.iter().fold(0, |divisor, (weight, _)| gcd(divisor, u128::from(*weight)));
    let mut credits = vec![0_i128; routes.len()];
    let mut turns = vec![0_usize; routes.len()];
    let mut slots = Vec::new();
    for _ in 0..round * rounds {
        for (credit, (weight, _)) in credits.iter_mut().zip(routes) {
            *credit += (u128::from(*weight) / divisor).cast_signed();
        }
        let next = (0..routes.len())
            .max_by_key(|route| (credits[*route], std::cmp::Reverse(*route)))
            .expect("there is a route");
        credits[next] -= round.cast_signed();
        let servers = routes[next].1;
        slots.push(servers[turns[next] % servers.len()]);
        turns[next] += 1;
    }
    slots
}

/// How long a round of the routes is, and how many of them it takes; `None` when that is too long.
fn lengths(routes: &[(u32, &[&str])]) -> Option<(u128, u128)> {
    let divisor = routes.iter().fold(0, |divisor, (weight, _)| gcd(divisor, u128::from(*weight)));
    let round: u128 = routes.iter().map(|(weight, _)| u128::from(*weight) / divisor).sum();
    let rounds = routes.iter().try_fold(1_u128, |rounds, (weight, servers)| {
        let servers = servers.len() as u128;
        let own = servers / gcd(servers, u128::from(*weight) / divisor);
        // Checked at each step: the product of the steps has no limit.
        let rounds = rounds / gcd(rounds, own) * own;
        (rounds <= PERIOD_MAX).then_some(rounds)
    })?;
    (round * rounds <= PERIOD_MAX).then_some((round, rounds))
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [[&str; 4]; 3] =
        [["a1", "a2", "a3", "a4"], ["b1", "b2", "b3", "b4"], ["c1", "c2", "c3", "c4"]];

    proptest! {
        #[test]
        fn every_window_is_exact(given in prop::collection::vec((0_u32..=20, 0_usize..=4), 1..=3)) {
            let routes: Vec<(u32, Vec<&str>)> =
                given.iter().zip(NAMES).map(|((weight, servers), names)| (*weight, names[..*servers].to_vec())).collect();
            let counted: Vec<&(u32, Vec<&str>)> = routes.iter().filter(|route| route.0 > 0 && !route.1.is_empty()).collect();
            let table = slots(&routes);
            if table.is_empty() {
                return Ok(());
            }
            let divisor = counted.iter().fold(0, |divisor, route| gcd(divisor, u128::from(route.0)));
            let count = |part: &[&str], names: &[&str]| part.iter().filter(|name| names.contains(name)).count() as u128;
            let round = counted.iter().map(|route| u128::from(route.0) / divisor).sum::<u128>();
            let round = usize::try_from(round).unwrap();
            let twice = table.repeat(2);
            for route in &counted {
                let expected = u128::from(route.0) / divisor;
                for window in twice.windows(round) {
                    prop_assert_eq!(count(window, &route.1), expected);
                }
                for server in &route.1 {
                    prop_assert_eq!(count(&table, &[*server]) * route.1.len() as u128, count(&table, &route.1));
                }
            }
            prop_assert_eq!(counted.iter().map(|route| count(&table, &route.1)).sum::<u128>(), table.len() as u128);
        }
    }

    #[test]
    fn tables_have_a_limit_and_need_a_choice() {
        assert_eq!(slots(&[(80, vec!["a"]), (20, vec!["b"])]), ["a", "a", "b", "a", "a"]);
        assert_eq!(slots(&[(1, vec!["a", "b"]), (0, vec!["c"])]), ["a", "b"]);
        assert_eq!(slots(&[(1, vec!["a"]), (0, vec!["c"]), (5, vec![])]), ["a"]);
        assert_eq!(Table::of("g", &[(1, vec!["a"]), (0, vec!["c"])]).slots, [""; 0]);
        assert_eq!(slots(&[(4997, vec!["a", "b"]), (3, vec!["c"])]), [""; 0]);
        assert_eq!(slots(&[(4997, vec!["a"]), (3, vec!["c"])]).len(), 5000);
        assert_eq!(slots(&[(u32::MAX, vec!["a"]), (1, vec!["c"])]), [""; 0]);
    }

    #[test]
    fn the_table_of_a_frontend_names_what_cookies_may_ask_for() {
        let table = Table::of_routes("g", &[(1, vec!["a"]), (0, vec!["b"])]);
        let digest = table.digest();
        assert_eq!(table.text(), format!("0 a\na@ a\nb@ b\nperiod 1\ndigest {digest}\n"));
    }

    #[test]
    fn no_share_is_too_fine_for_a_frontend() {
        let (a, b, c) = (vec!["a"], vec!["b"], vec!["c"]);
        let table = Table::of_routes("g", &[(9801, a.clone()), (99, b.clone()), (100, c)]);
        let count = |name| table.slots.iter().filter(|slot| *slot == name).count();
        assert_eq!((count("a"), count("b"), count("c")), (4898, 49, 50));
        let table = Table::of_routes("g", &[(u32::MAX, a), (1, b), (0, vec!["c"]), (7, vec![])]);
        assert_eq!(table.slots.len(), 4999);
        assert_eq!(table.slots.iter().filter(|slot| *slot == "b").count(), 1);
    }

    #[test]
    fn shares_behind_a_condition_are_exact_where_a_table_can_be() {
        for (strength, length) in [(100, 100), (50, 200), (10, 1000), (98, 5000)] {
            let slots = Preference::of(strength, &[(99, vec!["a"]), (1, vec!["b"])]).slots;
            let count = |name| slots.iter().filter(|slot| *slot == name).count();
            assert_eq!(slots.len(), length, "{strength}");
            assert_eq!(count("a"), 99 * count("b"), "{strength}");
            assert_eq!((count("a") + count("b")) * 100, length * usize::from(strength));
        }
    }

    #[test]
    fn preferences_follow_their_strength() {
        let slots = |strength, ways: &[(u32, Vec<&str>)]| Preference::of(strength, ways).slots;
        assert_eq!(slots(100, &[(1, vec!["a"])]), ["a"]);
        assert_eq!(slots(50, &[(1, vec!["a"])]), ["a", "-"]);
        assert_eq!(slots(50, &[(1, vec!["a", "b"])]), ["a", "-", "b", "-"]);
        assert_eq!(slots(25, &[(7, vec!["a"]), (5, vec![]), (0, vec!["b"])]), ["-", "a", "-", "-"]);
        assert_eq!(slots(0, &[(1, vec!["a"])]), [""; 0]);
        assert_eq!(slots(50, &[(1, vec![])]), [""; 0]);
        let firm = |strength| Preference::of(strength, &[(1, vec!["a"])]).firm;
        assert!(firm(100) && !firm(99));
        let many: Vec<String> = (0..97).map(|number| format!("s{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (strength, ways) in
            [(37, vec![(1, many)]), (33, vec![(999_983, vec!["a"]), (17, vec!["b"])])]
        {
            let slots = slots(strength, &ways);
            let others = slots.iter().filter(|slot| *slot == LIKE_OTHERS).count();
            assert!(slots.len() as u128 <= PERIOD_MAX + 100, "{}", slots.len());
            assert_eq!(others * 100, slots.len() * usize::from(100 - strength));
        }
    }

    #[test]
    fn the_file_tells_the_period_and_itself() {
        let table = Table::of("g", &[(1, vec!["a"]), (1, vec!["b"])]);
        let digest = table.digest();
        assert_eq!(table.text(), format!("0 a\n1 b\nperiod 2\ndigest {digest}\n"));
        assert_ne!(digest, Table::of("h", &[(1, vec!["a"]), (1, vec!["b"])]).digest());
    }
}
