//! What references stand for: the stored artifacts in their place. What is missing is reported where it was named.

use super::State;
use crate::artifact::{ClusterSla, Escalation, EscalationReference, SlaName, SlaReference};
use crate::problem::{Problem, ProblemKind, Result};

/// The SLA that `sla`, written at `pointer`, stands for, with escalations in place of their names at every depth.
pub fn resolve_sla(state: &State, sla: &SlaReference, pointer: &str) -> Result<ClusterSla> {
    let (named, mut sla) = match sla {
        SlaReference::Inline(sla) => (None, (**sla).clone()),
        SlaReference::Reference { name, escalations } => {
            let stored = state.slas().get(name).ok_or_else(|| not_found(pointer, "SLA", name))?;
            let mut sla = stored.artifact.sla.clone();
            if !escalations.is_empty() {
                sla.escalations.clone_from(escalations);
            }
            let metadata = stored.artifact.metadata.clone();
            (Some(SlaName { name: name.clone(), metadata }), sla)
        }
    };
    sla.escalations = expand(state, &sla.escalations, pointer, &mut Vec::new(), &mut 0)?;
    Ok(ClusterSla { named, sla })
}

/// How many escalations one SLA may stand for, those in groups included.
const ESCALATIONS_MAX: usize = 1000;

/// The escalations with what is stored in the place of references, at every depth.
fn expand(
    state: &State,
    escalations: &[EscalationReference],
    pointer: &str,
    path: &mut Vec<String>,
    count: &mut usize,
) -> Result<Vec<EscalationReference>> {
    let mut list = Vec::with_capacity(escalations.len());
    for escalation in escalations {
        *count += 1;
        if *count > ESCALATIONS_MAX {
            let detail = format!("the escalations stand for more than {ESCALATIONS_MAX}");
            let problem = Problem::new(ProblemKind::RecursiveDependencies, pointer, detail);
            return Err(problem.hint("name each stored group once").into());
        }
        let (inline, entered) = match escalation {
            EscalationReference::Inline(inline) => ((**inline).clone(), false),
            EscalationReference::Reference(name) => {
                if path.contains(name) {
                    let detail = format!("the escalation '{name}' holds itself");
                    let problem = Problem::new(ProblemKind::RecursiveDependencies, pointer, detail);
                    return Err(problem.hint(format!("take '{name}' out of its own group")).into());
                }
                let stored = state.escalations().get(name);
                let stored = stored.ok_or_else(|| not_found(pointer, "escalation", name))?;
                path.push(name.clone());
                (stored.artifact.escalation.clone(), true)
            }
        };
        let inline = match inline {
            Escalation::ToAll(members) => {
                Escalation::ToAll(expand(state, &members, pointer, path, count)?)
            }
            Escalation::ToOne(members) => {
                Escalation::ToOne(expand(state, &members, pointer, path, count)?)
            }
            single => single,
        };
        if entered {
            path.pop();
        }
        list.push(EscalationReference::Inline(Box::new(inline)));
    }
    Ok(list)
}

/// A reference at `pointer` leads nowhere.
pub fn not_found(pointer: &str, kind: &str, name: &str) -> Problem {
    let detail = format!("there is no {kind} '{name}'");
    Problem::new(ProblemKind::ArtifactNotFound, pointer, detail)
        .hint(format!("store the {kind} first, or write it in place of the reference"))
}
