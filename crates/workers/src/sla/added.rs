//! What checks of an SLA added and nobody changed since: all that is taken back where no requests come.

use super::{ACTOR, Subject};
use segue_domain::artifact::Scale;
use segue_domain::command::{Direction, EscalationEvent, Scaled};
use segue_domain::event::{DeploymentFact, Fact, Origin, Position, Query, Record};
use segue_domain::log::ReadError;
use std::collections::BTreeMap;

/// How many steps that were taken are looked at, newest first.
const STEPS_MAX: usize = 100;

/// How much of services is wanted, by cluster and breed.
type Scales = BTreeMap<(String, String), Scale>;

/// An escalation that a verdict led to.
struct Step {
    direction: Direction,
    scaled: Vec<Scaled>,
}

impl Subject<'_> {
    /// What the last step up made of services whose scale is still the one it led to, without what leads below their
    /// scale before the first of these steps: that is what somebody said is to run.
    pub(super) fn added(&self) -> Result<Vec<Scaled>, ReadError> {
        let mut before = Scales::new();
        let mut steps = Vec::new();
        for record in self.applied()? {
            let Some(direction) = self.own_direction(&record)? else { break };
            let scaled = Scaled::all(&record.event.value["scaled"]);
            let Some(earlier) = self.undone(&before, &scaled) else { break };
            before = earlier;
            steps.push(Step { direction, scaled });
        }
        let ups = steps.iter().filter(|step| step.direction == Direction::Up);
        let mut undoable = ups.map(|step| self.undoable(step, &before));
        Ok(undoable.find(|undoable| !undoable.is_empty()).unwrap_or_default())
    }

    /// What escalations of this cluster led to since there is this deployment, newest first; not what somebody posted.
    fn applied(&self) -> Result<Vec<Record>, ReadError> {
        let since = self.deleted_before()?;
        let query = Query {
            tags: vec![
                format!("deployments:{}", self.deployment.name),
                format!("clusters:{}", self.cluster),
                "escalation:applied".to_owned(),
            ],
            ..Query::default()
        };
        let mut applied = Vec::new();
        self.visit(&query, |record| {
            if record.provenance.origin == Origin::Service && record.position > since {
                applied.push(record.clone());
            }
            applied.len() < STEPS_MAX
        })?;
        applied.sort_by_key(|record| std::cmp::Reverse(record.position));
        Ok(applied)
    }

    /// Where an earlier deployment of this name was deleted last; the start of the log when there was none.
    fn deleted_before(&self) -> Result<Position, ReadError> {
        let tags = vec![format!("deployments:{}", self.deployment.name), "archive:delete".into()];
        let query = Query { tags, kind: Some("archive".to_owned()), ..Query::default() };
        let mut deleted = Position::START;
        self.visit(&query, |record| {
            let fact = &record.event.fact;
            if matches!(fact, Some(Fact::Deployment { fact: DeploymentFact::Deleted, .. })) {
                deleted = record.position;
            }
            deleted == Position::START
        })?;
        Ok(deleted)
    }

    /// Where the verdict went that led to `record`; `None` when it was somebody else's.
    fn own_direction(&self, record: &Record) -> Result<Option<Direction>, ReadError> {
        let Some(cause) = record.provenance.cause else { return Ok(None) };
        let before = Position(cause.0.saturating_sub(1));
        let verdict = self.store.log().read(before, 1)?;
        let own = verdict
            .first()
            .filter(|found| found.position == cause && found.provenance.actor == ACTOR);
        Ok(own.and_then(|own| Some(EscalationEvent::of_record(own)?.direction)))
    }

    /// The scales before `changes`, when they led to `scales`; what is not among them is as it is now. `None` when they did
    /// not: somebody else has changed them since.
    fn undone(&self, scales: &Scales, changes: &[Scaled]) -> Option<Scales> {
        let mut before = scales.clone();
        for change in changes.iter().rev() {
            if self.scale(&before, change)? != change.to {
                return None;
            }
            before.insert(key(change), change.from);
        }
        Some(before)
    }

    /// What can be undone of `step`, without going below `least`.
    fn undoable(&self, step: &Step, least: &Scales) -> Vec<Scaled> {
        let mut scales = Scales::new();
        let mut undoable = Vec::new();
        for change in step.scaled.iter().rev() {
            let is_there = self.scale(&scales, change) == Some(change.to);
            let stays = least.get(&key(change)).is_some_and(|least| covers(change.from, *least));
            if is_there && stays && covers(change.to, change.from) {
                scales.insert(key(change), change.from);
                undoable.push(change.clone());
            }
        }
        undoable.reverse();
        undoable
    }

    /// The scale of the service that `change` is about: that of `scales`, else the present one.
    fn scale(&self, scales: &Scales, change: &Scaled) -> Option<Scale> {
        let present = || Some(self.deployment.service(&change.cluster, &change.service)?.scale);
        scales.get(&key(change)).copied().or_else(present)
    }
}

fn key(change: &Scaled) -> (String, String) {
    (change.cluster.clone(), change.service.clone())
}

/// Whether `scale` is nowhere less than `least`.
fn covers(scale: Scale, least: Scale) -> bool {
    scale.cpu >= least.cpu && scale.memory >= least.memory && scale.instances >= least.instances
}
