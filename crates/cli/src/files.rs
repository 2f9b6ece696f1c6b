//! Writing results: a file is whole, or it is not there.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

/// Writes a file whole, to the disk, or not at all: beside it first, then under its name. What
/// cannot be replaced is written to as it is: what is no regular file or has no name (a device, a
/// pipe, a descriptor), what has several names, and what is in a folder that takes no other file.
///
/// # Errors
/// Those of the file system. An existing file that can be replaced keeps its content.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let content = content.as_ref();
    let Some(path) = replaceable(path) else {
        return fs::write(path, content);
    };
    let beside = beside(&path);
    match put(&path, &beside, content) {
        Ok(()) => Ok(()),
        Err(error) => {
            _ = fs::remove_file(&beside);
            match error.kind() {
                io::ErrorKind::PermissionDenied
                | io::ErrorKind::ResourceBusy
                | io::ErrorKind::CrossesDevices
                | io::ErrorKind::InvalidFilename => fs::write(&path, content),
                _ => Err(error),
            }
        }
    }
}

/// Returns the file's own name, behind links, if another file may take its place.
fn replaceable(path: &Path) -> Option<PathBuf> {
    // Names of descriptors lead to files whose inode their holder has.
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return None;
    }
    match (fs::metadata(path), fs::symlink_metadata(path)) {
        (Ok(file), _) => {
            let path = fs::canonicalize(path).ok()?;
            (file.is_file() && file.nlink() == 1 && !path.starts_with("/dev") && !path.starts_with("/proc"))
                .then_some(path)
        }
        // A link that leads to nothing yet.
        (Err(_), Ok(_)) => None,
        (Err(_), Err(_)) => Some(path.to_owned()),
    }
}

fn put(path: &Path, beside: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(beside)?;
    if let Ok(before) = fs::metadata(path) {
        fchown(&file, Some(before.uid()), Some(before.gid()))?;
        file.set_permissions(before.permissions())?;
    }
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    // The name, too, where folders can be written to the disk.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    Ok(())
}

/// A name in the same folder that two processes do not share.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ringside-files-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a folder");
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("readable").flatten();
            let mut names: Vec<_> = entries
                .map(|entry| entry.file_name().into_string().expect("text"))
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn replaces_a_file_and_keeps_its_mode_and_links_to_it() {
        let folder = Folder::new("replace");
        let (file, link) = (folder.0.join("result.json"), folder.0.join("latest.json"));
        write(&file, "one").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
        symlink("result.json", &link).expect("a link");
        write(&link, "two").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("there"), "two");
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o640);
        assert_eq!(folder.names(), ["latest.json", "result.json"]);
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    }

    #[test]
    fn writes_to_a_device_as_it_is() {
        write(Path::new("/dev/null"), "nothing").expect("taken");
        assert!(!fs::metadata("/dev/null").expect("there").is_file());
    }

    #[test]
    fn writes_to_a_file_without_a_name_as_it_is() {
        let folder = Folder::new("nameless");
        let path = folder.0.join("file");
        let made = File::options().read(true).write(true).create_new(true).open(&path);
        let mut file = made.expect("a file");
        fs::remove_file(&path).expect("removed");
        write(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), "content").expect("written");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "content");
        assert!(folder.names().is_empty());
    }

    #[test]
    fn writes_what_has_two_names_or_leads_nowhere_yet_as_it_is() {
        let folder = Folder::new("names");
        let [file, other, link] = ["file", "other", "link"].map(|name| folder.0.join(name));
        fs::write(&file, "before").expect("written");
        fs::hard_link(&file, &other).expect("a second name");
        write(&file, "after").expect("written");
        assert_eq!(fs::read_to_string(&other).expect("there"), "after");
        symlink("target", &link).expect("a link");
        write(&link, "content").expect("written");
        assert_eq!(fs::read_to_string(folder.0.join("target")).expect("there"), "content");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    }

    #[test]
    fn leaves_nothing_where_it_fails() {
        let folder = Folder::new("fails");
        let missing = folder.0.join("missing").join("result.json");
        assert_eq!(write(&missing, "x").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(folder.names().is_empty());
    }
}
