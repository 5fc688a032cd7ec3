//! Fuzzing in small: the corpus of every target is replayed and then mutated for a few seconds, each time
//! in another way; an input that breaks a target is printed. `SEGUE_FUZZ_SECONDS` makes it longer; `fuzz/` has the same targets for cargo-fuzz.

#[path = "../../../../fuzz/targets.rs"]
mod targets;

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// A target by its name, which is that of its corpus.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 5] = [
    ("documents", targets::documents),
    ("conditions", targets::conditions),
    ("values", targets::values),
    ("queries", targets::queries),
    ("dates", targets::dates),
];

/// How long each target is fed with mutations when nothing else is said.
const SECONDS: u64 = 2;
/// Longer inputs than this are cut: what takes long to read finds little.
const BYTES_MAX: usize = 8 * 1024;
/// More memory than this the whole program never takes.
const MEMORY_KILOBYTES_MAX: u64 = 1024 * 1024;

/// Pieces that documents, conditions, values and queries are made of.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ": ",
    ", ",
    "- ",
    "\n",
    "\n  ",
    "---\n",
    "&a ",
    "*a",
    "<<: *a",
    "!tag ",
    "|\n ",
    ">\n ",
    "'",
    "\"",
    "\\u0000",
    "\\ud83d",
    "~",
    "yes",
    "010",
    "1e9",
    ".inf",
    "-0",
    "name: ",
    "kind: ",
    "ref: ",
    "clusters: ",
    "services: ",
    "breed: ",
    "deployable: ",
    "gateways: ",
    "routes: ",
    "weight: ",
    "condition: ",
    "sla: ",
    "scale: ",
    "ports: ",
    "env: ",
    "arguments: ",
    "dependencies: ",
    "escalations: ",
    "to_all: ",
    "import: ",
    "timestamp: ",
    "lte: ",
    "gt: ",
    "aggregator: ",
    "tags: ",
    "now",
    "||",
    "+1M",
    "-1y",
    "/w",
    "99999999999999999999",
    "$",
    "${",
    "$$",
    "://",
    ".host",
    ".ports.",
    "80/http",
    "50%",
    "10s",
    "1GB",
    "[A]",
    "has header ",
    "user-agent == ",
    " and ",
    " or ",
    "not ",
    "!",
    "< raw >",
    "(",
    ")",
    "misses cookie ",
    "\u{feff}",
    "é",
    "😀",
    "\u{0}",
    "\u{7f}",
    "\t",
    "# ",
];

/// Whatever is sent to the readers is read or refused, in bounded memory.
#[test]
fn no_text_breaks_a_reader() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let seconds = std::env::var("SEGUE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
    for (name, target) in TARGETS {
        let corpus = corpus(&folder.join(name));
        for input in &corpus {
            feed(name, target, input);
        }
        let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        if let Ok(seed) = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            // Skipping is seeding: what was tried in an earlier run is not tried again.
            for _ in 0..seed.subsec_nanos() % 100_000 {
                let _ = random.next_u64();
            }
        }
        let began = Instant::now();
        while began.elapsed() < time {
            let input = mutated(&corpus, &mut random);
            feed(name, target, &input);
        }
    }
    let taken = peak_kilobytes();
    assert!(taken < MEMORY_KILOBYTES_MAX, "the readers took {taken} kB at most");
}

/// Runs the target; a panic is told with the input that led to it.
fn feed(name: &str, target: fn(&[u8]), input: &[u8]) {
    let fed = catch_unwind(AssertUnwindSafe(|| target(input)));
    assert!(
        fed.is_ok(),
        "{name} breaks on {:?}; add it to fuzz/corpus/{name}",
        String::from_utf8_lossy(input)
    );
}

fn corpus(folder: &Path) -> Vec<Vec<u8>> {
    let files =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no corpus", folder.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// One of the corpus, changed in up to eight places.
fn mutated(corpus: &[Vec<u8>], random: &mut TestRng) -> Vec<u8> {
    let mut input = corpus[below(corpus.len(), random)].clone();
    for _ in 0..=below(8, random) {
        let at = below(input.len() + 1, random);
        match below(6, random) {
            0 => {
                let word = WORDS[below(WORDS.len(), random)];
                drop(input.splice(at..at, word.bytes()));
            }
            1 => {
                let end = (at + below(16, random)).min(input.len());
                drop(input.drain(at..end));
            }
            2 => {
                let end = (at + below(64, random)).min(input.len());
                let again = input[at..end].to_vec();
                let times = 1 << below(6, random);
                drop(input.splice(at..at, again.repeat(times)));
            }
            3 => {
                let other = &corpus[below(corpus.len(), random)];
                let from = below(other.len() + 1, random);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            4 if at < input.len() => input[at] = random.next_u64().to_le_bytes()[0],
            _ => {
                let word = WORDS[below(WORDS.len(), random)];
                let end = (at + word.len()).min(input.len());
                drop(input.splice(at..end, word.bytes()));
            }
        }
    }
    input.truncate(BYTES_MAX);
    input
}

/// A number below `limit`, which is not 0.
fn below(limit: usize, random: &mut TestRng) -> usize {
    let limit = u64::try_from(limit).expect("an input is shorter than 2^64");
    usize::try_from(random.next_u64() % limit).expect("it is below a usize")
}

/// The most memory that this program had so far.
fn peak_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
