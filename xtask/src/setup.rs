//! `cargo xtask setup`: what the machine must have, and how it gets there. Knows Debian packages and nothing of Segue.

use crate::progress;
use anyhow::{Result, bail};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What one wants to do.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Options {
    /// Also what the tests need: Docker and a static program to make images of.
    #[arg(long)]
    pub for_tests: bool,
    /// Also what the benches need: a load generator.
    #[arg(long)]
    pub for_bench: bool,
    /// Also what `demo --containers docker` needs.
    #[arg(long)]
    pub for_docker: bool,
}

/// A Debian package and how one sees that it, or something as good, is there.
#[derive(Debug)]
struct Need {
    package: &'static str,
    purpose: &'static str,
    wanted: fn(&Options) -> bool,
    present: fn() -> bool,
}

const NEEDS: [Need; 16] = [
    Need {
        package: "g++",
        purpose: "compiles RocksDB",
        wanted: |_| true,
        present: || program("c++").is_some(),
    },
    Need {
        package: "make",
        purpose: "compiles jemalloc",
        wanted: |_| true,
        present: || program("make").is_some(),
    },
    Need {
        package: "libclang-dev",
        purpose: "reads RocksDB's headers",
        wanted: |_| true,
        present: has_libclang,
    },
    Need {
        package: "ccache",
        purpose: "compiles RocksDB only once",
        wanted: |_| true,
        present: || program("ccache").is_some(),
    },
    Need {
        package: "haproxy",
        purpose: "routes traffic",
        wanted: |_| true,
        present: || program("haproxy").is_some(),
    },
    Need {
        package: "docker.io",
        purpose: "runs containers",
        wanted: |options| options.for_tests || options.for_docker,
        present: || program("docker").is_some() && program("dockerd").is_some(),
    },
    Need {
        package: "busybox-static",
        purpose: "is the content of local images",
        wanted: |options| options.for_tests || options.for_docker,
        present: || static_busybox().is_some(),
    },
    Need {
        package: "docker-registry",
        purpose: "is the registry that tests pull from",
        wanted: |options| options.for_tests,
        present: || program("docker-registry").is_some(),
    },
    Need {
        package: "apache2-utils",
        purpose: "makes the passwords of that registry",
        wanted: |options| options.for_tests,
        present: || program("htpasswd").is_some(),
    },
    Need {
        package: "curl",
        purpose: "runs the steps of the tutorial",
        wanted: |options| options.for_tests,
        present: || program("curl").is_some(),
    },
    Need {
        package: "e2fsprogs",
        purpose: "makes the file systems that tests take away",
        wanted: |options| options.for_tests,
        present: || program("mkfs.ext4").is_some(),
    },
    Need {
        package: "iproute2",
        purpose: "makes the bridges of containers",
        wanted: |options| options.for_tests,
        present: || program("ip").is_some(),
    },
    Need {
        package: "python3",
        purpose: "asks such a file system to shut down",
        wanted: |options| options.for_tests,
        present: || program("python3").is_some(),
    },
    Need {
        package: "wrk",
        purpose: "measures throughput",
        wanted: |options| options.for_bench,
        present: || program("wrk").is_some(),
    },
    Need {
        package: "postgresql-15",
        purpose: "is measured beside the log",
        wanted: |options| options.for_bench,
        present: || Path::new("/usr/lib/postgresql/15/bin/pgbench").is_file(),
    },
    Need {
        package: "etcd-server",
        purpose: "is measured beside the log",
        wanted: |options| options.for_bench,
        present: || program("etcd").is_some(),
    },
];

/// Installs what is missing, or says how.
pub fn run(options: Options) -> Result<()> {
    let missing: Vec<&Need> = NEEDS
        .iter()
        .filter(|need| (need.wanted)(&options))
        .filter(|need| !(need.present)())
        .collect();
    if missing.is_empty() {
        println!("setup: everything that is needed is there");
        return Ok(());
    }
    for need in &missing {
        println!("setup: {} is missing; it {}", need.package, need.purpose);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if !rustix::process::geteuid().is_root() {
        bail!(
            "packages are missing and only root can install them; run:\n  {}",
            install_line(&packages)
        );
    }
    install(&packages)?;
    match missing.iter().find(|need| !(need.present)()) {
        None => Ok(()),
        Some(need) => {
            bail!("{} was installed, but what it should bring is not found", need.package)
        }
    }
}

/// The path of an installed program. The folders for system programs count even where a user's `PATH` lacks them.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// A busybox that runs in an image without anything else.
pub fn static_busybox() -> Option<PathBuf> {
    let loader = b"/lib64/ld-linux";
    let path = program("busybox")?;
    let content = fs::read(&path).ok()?;
    let dynamic = content.windows(loader.len()).any(|part| part == loader);
    (!dynamic).then_some(path)
}

fn install_line(packages: &[&str]) -> String {
    format!("sudo apt-get install -y {}", packages.join(" "))
}

fn install(packages: &[&str]) -> Result<()> {
    if program("apt-get").is_none() {
        bail!("this is no Debian; install what matches these packages: {}", packages.join(" "));
    }
    progress::run("reading the list of packages", apt_get(&["update"]).env("LC_ALL", "C"))?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    progress::run(&format!("installing {}", packages.join(", ")), &mut apt_get(&arguments))
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(std::process::Stdio::null());
    command
}

/// As `clang-sys` looks for it: where it is told, in LLVM's folders, or among the libraries.
fn has_libclang() -> bool {
    let told = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let llvm = folders(Path::new("/usr/lib"), "llvm").into_iter().map(|folder| folder.join("lib"));
    told.into_iter().chain(llvm).any(|folder| {
        names(&folder).iter().any(|name| name.starts_with("libclang") && name.contains(".so"))
    })
}

fn folders(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    names(parent)
        .iter()
        .filter(|name| name.starts_with(prefix))
        .map(|name| parent.join(name))
        .collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(options: Options) -> Vec<&'static str> {
        NEEDS.iter().filter(|need| (need.wanted)(&options)).map(|need| need.package).collect()
    }

    #[test]
    fn each_purpose_has_its_packages() {
        assert_eq!(
            packages(Options::default()),
            ["g++", "make", "libclang-dev", "ccache", "haproxy"]
        );
        let tests = packages(Options { for_tests: true, ..Options::default() });
        assert_eq!(
            tests,
            [
                "g++",
                "make",
                "libclang-dev",
                "ccache",
                "haproxy",
                "docker.io",
                "busybox-static",
                "docker-registry",
                "apache2-utils",
                "curl",
                "e2fsprogs",
                "iproute2",
                "python3"
            ]
        );
        assert!(packages(Options { for_bench: true, ..Options::default() }).contains(&"wrk"));
    }

    #[test]
    fn the_line_for_those_who_are_not_root_can_be_pasted() {
        assert_eq!(install_line(&["g++", "ccache"]), "sudo apt-get install -y g++ ccache");
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(program("sh").is_some());
        assert!(program("no-such-program-anywhere").is_none());
    }
}
