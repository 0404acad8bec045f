//! The checkpoint files of a directory.

use std::io;
use std::path::Path;

use ringbolt_io::Io;

use crate::types::RaftIndex;

/// End of a checkpoint's file name.
const SUFFIX: &str = ".checkpoint";
/// End of the name of one whose writing was not finished.
const PARTIAL: &str = ".checkpoint.partial";

/// The name of a checkpoint: its index, and a number drawn for this file alone.
pub(super) fn file_name(index: RaftIndex, drawn: u64) -> String {
    format!("{:020}-{drawn:016x}{SUFFIX}", index.0)
}

/// The index in the name of a checkpoint.
fn index_of(name: &str) -> Option<RaftIndex> {
    let (index, drawn) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let whole = index.len() == 20 && drawn.len() == 16;
    let index = index.parse().ok().map(RaftIndex);
    index.filter(|_| whole && drawn.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The whole checkpoints in `directory`, by index.
///
/// # Errors
/// The system's.
pub async fn list(io: &Io, directory: &Path) -> io::Result<Vec<(RaftIndex, String)>> {
    let names = io.disk().read_dir(directory).await?;
    let known = names.into_iter().filter_map(|name| index_of(&name).map(|index| (index, name)));
    Ok(known.collect())
}

/// Removes every checkpoint but `keep`, and every unfinished one; gives how many. Only when the
/// record that names `keep` is durable (S3), and while none is being written.
///
/// # Errors
/// The system's. What stays is removed the next time.
pub async fn clean(io: &Io, directory: &Path, keep: Option<&str>) -> io::Result<usize> {
    let mut count = 0;
    for name in io.disk().read_dir(directory).await? {
        let stale = index_of(&name).is_some() && keep != Some(name.as_str());
        if stale || name.ends_with(PARTIAL) {
            io.disk().remove(&directory.join(&name)).await?;
            count += 1;
        }
    }
    if count > 0 {
        io.disk().sync_dir(directory).await?;
    }
    Ok(count)
}
