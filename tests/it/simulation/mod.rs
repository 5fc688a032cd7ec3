//! A thousand seeded lives of the workers against simulated drivers.
//!
//! In each life random users merge, shift, scale and delete while instances crash, drivers fail, and the service
//! itself is killed between any two steps. At no time may Segue take an instance away that still gets traffic; after
//! quiet time, what runs is what is wanted. A failing seed is printed and replays alone: `SEGUE_SEED=17 cargo test
//! -p segue-tests --test it simulation`.

mod life;
mod world;

use life::Life;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SEEDS: u64 = 1_000;
const SEEDS_LONG: u64 = 10_000;
const STEPS_MAX: u32 = 60;
const THREADS: u64 = 2;

#[test]
fn after_quiet_time_what_runs_is_what_is_wanted() {
    if let Ok(seed) = std::env::var("SEGUE_SEED") {
        live(seed.parse().expect("SEGUE_SEED is a number"));
        return;
    }
    let seeds = if std::env::var_os("SEGUE_TEST_LONG").is_some() { SEEDS_LONG } else { SEEDS };
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let own = (0..seeds).filter(|seed| seed % THREADS == thread);
                    own.filter(|seed| catch_unwind(AssertUnwindSafe(|| live(*seed))).is_err())
                        .take(3)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("lives are caught")).collect()
    });
    assert!(
        failed.is_empty(),
        "these seeds failed, see above: {failed:?}; replay one with SEGUE_SEED=<seed>"
    );
}

fn live(seed: u64) {
    let mut life = Life::new(StdRng::seed_from_u64(seed));
    for _ in 0..STEPS_MAX {
        life.step();
    }
    life.settle();
    life.check_settled();
}
