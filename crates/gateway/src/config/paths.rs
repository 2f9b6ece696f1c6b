//! What the gateway writes is nothing else at the same time: a socket would replace the store.

use std::path::{Component, Path, PathBuf};

use super::{Check, File};
use crate::api::UnixSocket;
use crate::store::{SUFFIXES, with_suffix};

/// A path, and what it is for.
struct Named {
    what: String,
    path: PathBuf,
}

impl Named {
    fn new(what: impl Into<String>, path: &Path) -> Self {
        Self {
            what: what.into(),
            path: resolve(path),
        }
    }

    /// True if they are the same, or one is within the other.
    fn overlaps(&self, other: &Self) -> bool {
        self.path.starts_with(&other.path) || other.path.starts_with(&self.path)
    }
}

impl Check<'_> {
    /// Checks that no path that the gateway writes is, contains or is within another one of the
    /// configuration. `from`: its file.
    pub(super) fn paths(&mut self, file: &File, from: &Path) {
        let (store, socket) = (&file.store.path, &file.api.socket);
        let mut written = vec![Named::new("store.path", store)];
        written.extend(SUFFIXES.map(|suffix| Named::new(format!("store.path{suffix}"), &with_suffix(store, suffix))));
        // All of these are the store's own.
        let of_store = written.len();
        written.push(Named::new("api.socket", socket));
        written.push(Named::new(
            "the folder that api.socket is made in",
            &UnixSocket::folder(socket),
        ));
        written.extend(file.path.pins().map(|pins| Named::new("path.pins", pins)));
        let mut read = vec![Named::new("the configuration", from)];
        let tcp = file.api.tcp.iter().flat_map(|tcp| {
            let files = [
                ("api.tcp.certificate", &tcp.certificate),
                ("api.tcp.key", &tcp.key),
                ("api.tcp.client-ca", &tcp.client_ca),
                ("api.tcp.host-ca", &tcp.host_ca),
            ];
            files
                .into_iter()
                .filter_map(|(key, file)| Some((key, file.as_deref()?)))
        });
        let key_file = file.path.key_file().map(|file| ("path.direct.key-file", file));
        read.extend((tcp.chain(file.store.files()).chain(key_file)).map(|(key, file)| Named::new(key, file)));
        for (at, one) in written.iter().enumerate() {
            let others = written.iter().skip((at + 1).max(of_store)).chain(&read);
            for other in others.filter(|other| one.overlaps(other)) {
                self.0.push(format!(
                    "{} ({}) and {} ({}) are the same, or one is within the other: give each a \
                     path of its own",
                    one.what,
                    one.path.display(),
                    other.what,
                    other.path.display(),
                ));
            }
        }
    }
}

/// Follows symbolic links and `..` as far as the path is there.
fn resolve(path: &Path) -> PathBuf {
    let there = path
        .ancestors()
        .find_map(|part| Some((part, part.canonicalize().ok()?)));
    let Some((part, mut resolved)) = there else {
        return path.to_owned();
    };
    for component in path.strip_prefix(part).unwrap_or(path).components() {
        match component {
            Component::ParentDir => _ = resolved.pop(),
            component => resolved.push(component),
        }
    }
    resolved
}
