//! A Docker daemon that restarts, dies or says nothing while its containers serve.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

use rustix::process::Signal;
use segue_tests::dockerd::{Dockerd, End, IMAGE};
use segue_tests::processes;
use segue_workers::containers::conformance::{self, wait_for};
use segue_workers::containers::{
    Condition, ContainerDriver, DockerDriver, InstanceSpec, ObservedInstance, docker,
};
use std::time::Duration;
use tokio::net::TcpStream;

/// A daemon, a driver, and two instances of one service.
struct Stage {
    daemon: Dockerd,
    driver: DockerDriver,
    specs: Vec<InstanceSpec>,
}

impl Stage {
    async fn new() -> Self {
        let daemon = Dockerd::start().unwrap();
        let driver = DockerDriver::new(docker::Settings {
            socket: daemon.socket(),
            stop_timeout: Duration::from_secs(1),
            ..docker::Settings::default()
        });
        let mut specs = Vec::new();
        for name in ["one", "two"] {
            let mut spec = conformance::spec("docker", IMAGE, "restarts");
            name.clone_into(&mut spec.name);
            let serve = "sh -c \"trap 'exit 0' TERM; nc -ll -p 8000 -e cat & wait\"";
            spec.dialect.insert("command".to_owned(), serve.into());
            driver.start(&spec).await.unwrap();
            specs.push(spec);
        }
        let stage = Self { daemon, driver, specs };
        stage.both_run().await;
        stage
    }

    fn deployment(&self) -> &str {
        &self.specs[0].owner.deployment
    }

    /// Waits until both run and answer, and nothing else is there.
    async fn both_run(&self) {
        let both = |found: &[ObservedInstance]| {
            assert!(found.len() <= 2, "{found:#?}");
            found.len() == 2 && found.iter().all(|found| found.condition == Condition::Running)
        };
        for found in wait_for(&self.driver, self.deployment(), both).await {
            TcpStream::connect((found.host.as_str(), found.ports["web"])).await.unwrap();
        }
    }

    /// What a planner does about instances that ended.
    async fn replace_what_ended(&self) {
        for spec in &self.specs {
            let is_ended = |found: &[ObservedInstance]| {
                let mut own = found.iter().filter(|found| found.name == spec.name);
                own.any(|found| matches!(found.condition, Condition::Exited(_)))
            };
            wait_for(&self.driver, self.deployment(), is_ended).await;
            self.driver.stop(self.deployment(), &spec.name).await.unwrap();
            let is_gone =
                |found: &[ObservedInstance]| found.iter().all(|found| found.name != spec.name);
            wait_for(&self.driver, self.deployment(), is_gone).await;
            self.driver.start(spec).await.unwrap();
        }
        self.both_run().await;
    }

    /// What tells the two containers, or their processes, from all others.
    fn inspect(&self, format: &str) -> Vec<String> {
        let told = self.daemon.docker(&["inspect", "-f", format, "one", "two"]).unwrap();
        told.lines().map(str::to_owned).collect()
    }

    /// The daemon went away: that is an error that may pass, and says what does not answer.
    async fn is_away(&self) {
        let error = self.driver.observe(self.deployment()).await.unwrap_err();
        let socket = self.daemon.socket();
        assert!(!error.is_permanent(), "{error}");
        assert!(error.to_string().contains(&*socket.to_string_lossy()), "{error}");
        assert!(self.driver.start(&self.specs[0]).await.is_err());
        assert!(self.driver.stop(self.deployment(), "one").await.is_err());
        assert!(self.driver.ping().await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_restarts_takes_its_containers_up_again() {
    let mut stage = Stage::new().await;
    let (ids, processes) = (stage.inspect("{{.Id}}"), stage.inspect("{{.State.Pid}}"));
    stage.daemon.end(End::Asked).unwrap();
    stage.is_away().await;
    stage.daemon.start_again(&[]).unwrap();
    stage.both_run().await;
    assert_eq!(stage.inspect("{{.Id}}"), ids, "they are the same containers");
    assert_ne!(stage.inspect("{{.State.Pid}}"), processes, "they were started again");
    // One that was killed ends what it finds alive when it comes back, and takes it for stopped by somebody.
    stage.daemon.end(End::Killed).unwrap();
    stage.is_away().await;
    stage.daemon.start_again(&[]).unwrap();
    stage.replace_what_ended().await;
    assert_eq!(stage.daemon.docker(&["ps", "-aq"]).unwrap().lines().count(), 2);
    let ids = stage.inspect("{{.Id}}");
    stage.daemon.end(End::Asked).unwrap();
    stage.daemon.start_again(&["--live-restore"]).unwrap();
    stage.both_run().await;
    let processes = stage.inspect("{{.State.Pid}}");
    for how in [End::Asked, End::Killed] {
        stage.daemon.end(how).unwrap();
        stage.is_away().await;
        for pid in &processes {
            assert!(processes::is_alive(pid.parse().unwrap()), "it lives without its daemon");
        }
        stage.daemon.start_again(&["--live-restore"]).unwrap();
        stage.both_run().await;
        assert_eq!(
            (stage.inspect("{{.Id}}"), stage.inspect("{{.State.Pid}}")),
            (ids.clone(), processes.clone())
        );
    }
    for spec in &stage.specs {
        stage.driver.stop(stage.deployment(), &spec.name).await.unwrap();
    }
    wait_for(&stage.driver, stage.deployment(), <[ObservedInstance]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_says_nothing_is_not_waited_for() {
    let stage = Stage::new().await;
    stage.daemon.freeze();
    let error = stage.driver.observe(stage.deployment()).await.unwrap_err();
    assert!(
        !error.is_permanent() && error.to_string().contains("nothing came back in time"),
        "{error}"
    );
    stage.daemon.signal(Signal::CONT);
    let answers = async {
        while stage.driver.ping().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), answers).await.unwrap();
    stage.both_run().await;
}
