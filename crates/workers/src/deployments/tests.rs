//! The worker of a deployment against simulated containers, with a clock that only the test moves.

use super::*;
use crate::containers::SimulatedContainers;
use crate::containers::simulated::Operation;
use crate::gateways::simulated::SimulatedGateways;
use crate::routing::GatewaysWorker;
use crate::turn;
use futures::executor::block_on;
use segue_domain::artifact::{Phase, PhaseName};
use segue_domain::command::{Command, Context, Rules, Submission, Verb};
use segue_domain::dsl::{self, Options};
use segue_domain::store::Store;

const START: OffsetDateTime = time::macros::datetime!(2030-01-10 12:00 UTC);
const SHOP: &str = "clusters: {web: {name: 'web:1', deployable: {type: process, definition: a}}}";

struct World {
    store: Store,
    containers: SimulatedContainers,
    deployments: DeploymentWorker,
    gateways: GatewaysWorker,
}

impl World {
    /// A deployment that was asked for at the start.
    fn new() -> Self {
        let store = Store::in_memory(Rules::default()).unwrap();
        let containers = SimulatedContainers::new();
        let mut number = 0;
        let suffixes = Box::new(move || {
            number += 1;
            number.to_string()
        });
        let settings = Settings::default();
        let drivers: Vec<Arc<dyn ContainerDriver>> = vec![Arc::new(containers.clone())];
        let name = "shop".to_owned();
        let body = dsl::read_deployment_body(&dsl::document(SHOP).unwrap(), &Options::default());
        let submission = Submission { verb: Verb::Update, representation: serde_json::json!("") };
        let command =
            Command::Deploy { name: name.clone(), body: Box::new(body.unwrap()), submission };
        let context = Context {
            now: START,
            actor: "user".to_owned(),
            cause: None,
            correlation: "request".to_owned(),
        };
        block_on(store.execute(&command, &context)).unwrap();
        Self {
            deployments: DeploymentWorker::new(name, drivers, settings.clone(), suffixes),
            gateways: GatewaysWorker::new(Arc::new(SimulatedGateways::default()), settings),
            containers,
            store,
        }
    }

    /// The phase of the service once nothing happens any more, so many seconds after the start.
    fn phase_at(&mut self, second: i64) -> Phase {
        let now = START + time::Duration::seconds(second);
        let Self { store, containers, deployments, gateways } = self;
        let mut quiet_rounds = 0;
        for _ in 0..100 {
            let before = store.log().last();
            containers.advance(now);
            let workers: [&mut dyn Worker; 2] = [deployments, gateways];
            for worker in workers {
                block_on(turn::take(store, worker, now, store.log().last(), "turn")).unwrap();
            }
            quiet_rounds = if store.log().last() == before { quiet_rounds + 1 } else { 0 };
            if quiet_rounds == 3 {
                let state = store.state();
                let shop = state.deployment("shop").unwrap();
                return shop.clusters["web"].services[0].status.phase.clone();
            }
        }
        panic!("it never settles");
    }
}

/// Shows: D36, D37
#[test]
fn a_time_out_counts_from_the_phase_and_tells_the_drivers_words() {
    let mut world = World::new();
    assert_eq!(world.phase_at(0).name, PhaseName::Done);
    // Long after the service was asked for, what runs is lost and cannot be replaced.
    let instance = world.containers.instances()[0].name.clone();
    let error = Error::Transient("no room on this host".to_owned());
    world.containers.fail(Operation::Start, 10_000, &error);
    assert!(world.containers.vanish(&instance));
    let lost = 10_000;
    assert_eq!(world.phase_at(lost).name, PhaseName::Updating);
    assert_eq!(world.phase_at(lost + 599).name, PhaseName::Updating);
    let failed = world.phase_at(lost + 600);
    assert_eq!(failed.name, PhaseName::Failed);
    let words = failed.notification.unwrap_or_default();
    assert!(words.contains("600 s") && words.contains("no room on this host"), "{words}");
}
