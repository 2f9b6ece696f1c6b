//! What is where the API's socket is to be.

use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::common::Folder;
use crate::common::daemon::{Daemon, binary, configure, refusal};

/// The program with a socket elsewhere in a folder.
fn with_socket(folder: &Folder, socket: &str, more: &str) -> Command {
    let file = configure(folder, "store.db", more);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("api.sock", socket)).unwrap();
    let mut command = binary();
    command.arg("--config").arg(file);
    command
}

#[test]
fn leaves_a_folder_whose_name_its_own_would_have() {
    let folder = Folder::new();
    let kept = folder.join(".keep/precious");
    std::fs::create_dir(folder.join(".keep")).unwrap();
    std::fs::write(&kept, "mine").unwrap();
    drop(UnixListener::bind(folder.join(".keep/socket")).unwrap());
    let said = refusal(with_socket(&folder, "keep", ""));
    assert!(said.contains("/.keep, where something else is"), "{said}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "mine");
    assert!(folder.join(".keep/socket").exists());
    // Nor is anything done behind a link.
    std::fs::rename(folder.join(".keep"), folder.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(folder.join("elsewhere"), folder.join(".keep")).unwrap();
    refusal(with_socket(&folder, "keep", ""));
    assert!(folder.join("elsewhere/precious").exists());
}

#[test]
fn replaces_what_a_killed_gateway_has_left() {
    let folder = Folder::new();
    for left in ["api.sock", ".api.sock/socket"] {
        let left = folder.join(left);
        std::fs::create_dir_all(left.parent().unwrap()).unwrap();
        drop(UnixListener::bind(left).unwrap());
    }
    configure(&folder, "store.db", "");
    let daemon = Daemon::start_in(folder);
    daemon.ok(&["health"]);
    assert!(!daemon.folder.join(".api.sock").exists());
    // What has taken its place is not its own.
    let socket = daemon.folder.join("api.sock");
    assert!(socket.symlink_metadata().unwrap().file_type().is_socket());
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "mine").unwrap();
    let folder = daemon.stop();
    assert_eq!(std::fs::read_to_string(folder.join("api.sock")).unwrap(), "mine");
}

#[test]
fn refuses_to_replace_what_is_no_socket() {
    let folder = Folder::new();
    let is_refused = |path: &Path, kind: &str| {
        let name = path.file_name().unwrap().to_str().unwrap();
        for check in [true, false] {
            let mut command = with_socket(&folder, name, "");
            command.args(check.then_some("--check"));
            let said = refusal(command);
            let expected = format!("{} is {kind}, no socket, and is not replaced", path.display());
            assert!(said.contains(&expected), "{said}");
        }
    };
    let file = folder.join("file");
    std::fs::write(&file, "mine").unwrap();
    is_refused(&file, "a file");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let link = folder.join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    is_refused(&link, "a symbolic link");
    std::fs::create_dir(folder.join("folder")).unwrap();
    is_refused(&folder.join("folder"), "a folder");
}
