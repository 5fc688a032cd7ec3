//! What holds in every state that commands can lead to.

use segue_domain::artifact::{GatewayName, PhaseName};
use segue_domain::state::State;
use std::collections::BTreeSet;

/// What is wrong with `state`, if anything.
pub fn broken(state: &State) -> Vec<String> {
    let mut wrong = Vec::new();
    gateways(state, &mut wrong);
    deployments(state, &mut wrong);
    wrong
}

fn gateways(state: &State, wrong: &mut Vec<String>) {
    let mut ports = BTreeSet::new();
    for (name, stored) in state.gateways() {
        let gateway = &stored.gateway;
        let number = gateway.port.number;
        if *name != gateway.name {
            wrong.push(format!("gateway '{name}' is stored as '{}'", gateway.name));
        }
        if number != 0 && !ports.insert(number) {
            wrong.push(format!("port {number} of gateway '{name}' is used twice"));
        }
        let weights = gateway
            .routes
            .values()
            .map(|route| route.weight.map(segue_domain::artifact::Percentage::value));
        let weights: Option<Vec<u8>> = weights.collect();
        let sum: Option<u32> = weights.map(|all| all.into_iter().map(u32::from).sum());
        if !matches!(sum, Some(0 | 100)) {
            wrong.push(format!("the weights of gateway '{name}' sum to {sum:?}"));
        }
        if stored.deployed && (!stored.published || number == 0) {
            wrong.push(format!("gateway '{name}' is deployed and cannot be"));
        }
        if let Some(GatewayName::Internal { deployment, cluster, port }) = GatewayName::parse(name)
        {
            for path in gateway.routes.keys() {
                let leads_to_service = match path.segments()[..] {
                    [d, c, breed, p] if (d, c, p) == (deployment, cluster, port) => state
                        .deployment(d)
                        .and_then(|found| found.service(c, breed))
                        .is_some_and(|service| {
                            !service.is_undeploying() && service.breed.ports.contains_key(p)
                        }),
                    _ => false,
                };
                if !leads_to_service {
                    wrong.push(format!("route '{}' of '{name}' leads nowhere", path.as_str()));
                }
            }
            if gateway.routes.is_empty() {
                wrong.push(format!("internal gateway '{name}' has no routes"));
            }
        }
    }
}

fn deployments(state: &State, wrong: &mut Vec<String>) {
    for (name, stored) in state.deployments() {
        let deployment = &stored.artifact;
        if *name != deployment.name {
            wrong.push(format!("deployment '{name}' is stored as '{}'", deployment.name));
        }
        if deployment.services().next().is_none() {
            wrong.push(format!("deployment '{name}' has no service"));
        }
        if deployment.clusters.values().any(|cluster| cluster.services.is_empty()) {
            wrong.push(format!("deployment '{name}' has an empty cluster"));
        }
        let mut breeds = BTreeSet::new();
        for (cluster, service) in deployment.services() {
            let breed = &service.breed.name;
            let phase = &service.status.phase;
            if phase.name == PhaseName::Failed && phase.notification.is_none() {
                wrong.push(format!("service '{breed}' failed without a reason"));
            }
            if service.is_undeploying() {
                continue;
            }
            if !breeds.insert(breed) {
                wrong.push(format!("breed '{breed}' runs twice in deployment '{name}'"));
            }
            for port in service.breed.ports.keys() {
                let gateway = format!("{name}/{cluster}/{port}");
                let path = format!(
                    "{gateway_service}/{port}",
                    gateway_service = format_args!("{name}/{cluster}/{breed}")
                );
                let found = state.gateway(&gateway);
                if !found.is_some_and(|found| found.routes.keys().any(|own| own.as_str() == path)) {
                    wrong.push(format!("gateway '{gateway}' has no route to '{breed}'"));
                }
                let done = phase.name == PhaseName::Done;
                if done && !state.gateways().get(&gateway).is_some_and(|found| found.published) {
                    wrong.push(format!("gateway '{gateway}' of a ready service is not published"));
                }
            }
        }
    }
}
