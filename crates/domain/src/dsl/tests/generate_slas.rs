//! Generated SLAs and escalations.

use super::generate::{metadata, name};
use crate::artifact::{
    Amount, Escalation, EscalationReference, NamedEscalation, NamedSla, ScaleStep, Sla, SlaCheck,
    SlaReference,
};
use proptest::{collection::vec, option, prelude::*};

fn amount() -> impl Strategy<Value = Amount> {
    (-1_000_000_000..1_000_000_000_i64).prop_map(Amount::from_milli)
}

fn step<T: std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = ScaleStep<T>> {
    (option::of(Just("c0".to_owned())), vec(value, 3)).prop_map(|(target, values)| {
        let Ok([minimum, maximum, scale_by]) = <[T; 3]>::try_from(values) else {
            unreachable!("there are three")
        };
        ScaleStep { target, minimum, maximum, scale_by }
    })
}

fn kind() -> impl Strategy<Value = String> {
    "[a-z ~]{0,6}".prop_map(|text| format!("own {text}"))
}

fn escalation() -> impl Strategy<Value = Escalation> {
    let single = prop_oneof![
        step(any::<i64>()).prop_map(Escalation::ScaleInstances),
        step(amount()).prop_map(Escalation::ScaleCpu),
        step(amount()).prop_map(Escalation::ScaleMemory),
        (kind(), metadata()).prop_map(|(kind, parameters)| Escalation::Other { kind, parameters }),
    ];
    single.prop_recursive(3, 8, 3, |inner| {
        let members = vec(reference(inner), 0..3);
        (members, any::<bool>()).prop_map(|(members, all)| {
            if all { Escalation::ToAll(members) } else { Escalation::ToOne(members) }
        })
    })
}

fn reference(
    escalation: impl Strategy<Value = Escalation> + 'static,
) -> impl Strategy<Value = EscalationReference> {
    prop_oneof![
        name().prop_map(EscalationReference::Reference),
        escalation.prop_map(|escalation| EscalationReference::Inline(Box::new(escalation))),
    ]
}

pub(super) fn named_escalation() -> impl Strategy<Value = NamedEscalation> {
    (name(), metadata(), escalation()).prop_map(|(name, metadata, escalation)| NamedEscalation {
        name,
        metadata,
        escalation,
    })
}

fn sla() -> impl Strategy<Value = Sla> {
    let window = [0..=i64::MAX, 0..=i64::MAX, 0..=i64::MAX, 0..=i64::MAX].prop_map(
        |[upper_ms, lower_ms, interval_seconds, cooldown_seconds]| {
            SlaCheck::ResponseTimeSlidingWindow {
                upper_ms,
                lower_ms,
                interval_seconds,
                cooldown_seconds,
            }
        },
    );
    let check = prop_oneof![
        window,
        Just(SlaCheck::EscalationOnly),
        (kind(), metadata()).prop_map(|(kind, parameters)| SlaCheck::Other { kind, parameters }),
    ];
    (check, option::of(reference(escalation()))).prop_map(|(check, escalation)| Sla {
        check,
        escalations: escalation.into_iter().collect(),
    })
}

pub(super) fn named_sla() -> impl Strategy<Value = NamedSla> {
    (name(), metadata(), sla()).prop_map(|(name, metadata, sla)| NamedSla { name, metadata, sla })
}

pub(super) fn sla_reference() -> impl Strategy<Value = SlaReference> {
    let stored = (name(), option::of(reference(escalation())));
    prop_oneof![
        stored.prop_map(|(name, escalation)| SlaReference::Reference {
            name,
            escalations: escalation.into_iter().collect(),
        }),
        sla().prop_map(|sla| SlaReference::Inline(Box::new(sla))),
    ]
}
