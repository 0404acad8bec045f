//! What an operator should know of the file system that a log lies on, said once at each open.

use std::path::Path;

use ringbolt_io::Io;

/// Names a file system that copies on write or lies over another, and buffered log files (W8).
pub(super) async fn report(io: &Io, directory: &Path, direct: bool) {
    let place = directory.display();
    if let Ok(kind) = io.disk().file_system(directory).await {
        let file_system = kind.name;
        if kind.copies_on_write {
            tracing::warn!(
                directory = %place,
                file_system,
                "this file system copies on write: each write of the log costs metadata writes \
                 too, and space set aside for a checkpoint is no promise; ext4 or xfs suit better"
            );
        } else if file_system == "overlayfs" {
            tracing::warn!(
                directory = %place,
                file_system,
                "this is a container's own layer: it goes with the container; use a volume"
            );
        }
    }
    if !direct {
        tracing::warn!(
            directory = %place,
            "this file system refuses direct I/O: all files of the log are read and written \
             buffered"
        );
    }
}
