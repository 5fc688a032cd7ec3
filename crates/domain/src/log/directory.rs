//! Directories of logs, snapshots and backups.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a directory that only its owner may look into, unless it is there: records hold what blueprints hold, and so the
/// secrets that people write into environment variables.
pub(super) fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
