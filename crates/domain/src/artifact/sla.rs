//! What a cluster promises, and what is done when it does not keep that or does better than it has to.

use super::Metadata;
use serde::{Deserialize, Serialize};

/// What a cluster promises: what is measured, and what is done when that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sla {
    /// What is measured.
    pub check: SlaCheck,
    /// What is done, as one list that runs until something changed.
    pub escalations: Vec<EscalationReference>,
}

/// What an SLA measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlaCheck {
    /// `response_time_sliding_window`: the mean response time over a window stays between two bounds.
    ResponseTimeSlidingWindow {
        /// Above this the SLA is escalated.
        upper_ms: i64,
        /// Below this it is de-escalated.
        lower_ms: i64,
        /// The length of the window.
        interval_seconds: i64,
        /// How long nothing is done after an escalation, beside the window.
        cooldown_seconds: i64,
    },
    /// `escalation_only`: nothing; somebody else posts the escalations.
    EscalationOnly,
    /// Any other type: kept for whoever knows it.
    Other {
        /// The type.
        kind: String,
        /// All keys that have no meaning of their own.
        parameters: Metadata,
    },
}

/// An SLA that is stored under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSla {
    /// The general name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The SLA.
    pub sla: Sla,
}

/// An SLA as a cluster of a blueprint gives it: by name, or in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlaReference {
    /// The name of a stored SLA.
    Reference {
        /// The name.
        name: String,
        /// Escalations that win over those of the stored SLA, when there are any.
        escalations: Vec<EscalationReference>,
    },
    /// An SLA written in place.
    Inline(Box<Sla>),
}

/// The SLA of a deployed cluster. All references in it are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSla {
    /// The name and metadata of the stored SLA that it was taken from.
    pub named: Option<SlaName>,
    /// The SLA, with escalations written in place at every depth.
    pub sla: Sla,
}

/// What a stored SLA is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlaName {
    /// The general name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
}

/// What is done when an SLA is not kept; undone when it is kept too well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Escalation {
    /// `scale_instances`: more or fewer instances.
    ScaleInstances(ScaleStep<i64>),
    /// `scale_cpu`: more or less processor share for each instance, in cores.
    ScaleCpu(ScaleStep<Amount>),
    /// `scale_memory`: more or less memory for each instance, in MB.
    ScaleMemory(ScaleStep<Amount>),
    /// `to_all`: all of them, each seeing what the one before did.
    ToAll(Vec<EscalationReference>),
    /// `to_one`: the first that changes something.
    ToOne(Vec<EscalationReference>),
    /// Any other type: kept for whoever knows it.
    Other {
        /// The type.
        kind: String,
        /// All keys that have no meaning of their own.
        parameters: Metadata,
    },
}

/// One step of a scale, up when escalated and down when de-escalated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleStep<T> {
    /// The cluster whose first service is scaled; the cluster of the SLA when absent.
    pub target: Option<String>,
    /// The least value that a step may lead to.
    pub minimum: T,
    /// The greatest value that a step may lead to.
    pub maximum: T,
    /// The size of the step.
    pub scale_by: T,
}

/// A decimal number in thousandths, so that steps add up exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount {
    milli: i64,
}

/// An escalation that is stored under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedEscalation {
    /// The general name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The escalation.
    pub escalation: Escalation,
}

/// An escalation by name, or in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscalationReference {
    /// The name of a stored escalation.
    Reference(String),
    /// An escalation written in place.
    Inline(Box<Escalation>),
}

impl Escalation {
    /// The type, as documents say it.
    pub fn kind(&self) -> &str {
        match self {
            Escalation::ScaleInstances(_) => "scale_instances",
            Escalation::ScaleCpu(_) => "scale_cpu",
            Escalation::ScaleMemory(_) => "scale_memory",
            Escalation::ToAll(_) => "to_all",
            Escalation::ToOne(_) => "to_one",
            Escalation::Other { kind, .. } => kind,
        }
    }

    /// The members of a group; none for everything else.
    pub fn members(&self) -> &[EscalationReference] {
        match self {
            Escalation::ToAll(members) | Escalation::ToOne(members) => members,
            Escalation::ScaleInstances(_)
            | Escalation::ScaleCpu(_)
            | Escalation::ScaleMemory(_)
            | Escalation::Other { .. } => &[],
        }
    }

    /// The cluster that a step names.
    pub fn target(&self) -> Option<&str> {
        match self {
            Escalation::ScaleInstances(step) => step.target.as_deref(),
            Escalation::ScaleCpu(step) | Escalation::ScaleMemory(step) => step.target.as_deref(),
            Escalation::ToAll(_) | Escalation::ToOne(_) | Escalation::Other { .. } => None,
        }
    }
}

impl SlaCheck {
    /// The type, as documents say it.
    pub fn kind(&self) -> &str {
        match self {
            SlaCheck::ResponseTimeSlidingWindow { .. } => "response_time_sliding_window",
            SlaCheck::EscalationOnly => "escalation_only",
            SlaCheck::Other { kind, .. } => kind,
        }
    }
}

impl Amount {
    /// An amount of `milli` thousandths.
    pub const fn from_milli(milli: i64) -> Self {
        Self { milli }
    }

    /// Thousandths.
    pub const fn milli(self) -> i64 {
        self.milli
    }

    /// The number, as documents print it.
    #[expect(clippy::cast_precision_loss, reason = "amounts stay far below 2^53 thousandths")]
    pub fn value(self) -> f64 {
        self.milli as f64 / 1000.0
    }

    /// The amount nearest to `value`; `None` when that is no number or beyond 10^12.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked before the cast")]
    pub fn from_value(value: f64) -> Option<Self> {
        (value.abs() <= 1e12).then(|| Self { milli: (value * 1000.0).round() as i64 })
    }
}
