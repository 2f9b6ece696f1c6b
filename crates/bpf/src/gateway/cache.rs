//! A map as its owner sees it: typed, and read and written in batches.

use std::io;
use std::marker::PhantomData;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::NAME;
use super::layout::Entry;
use crate::error::{Error, Result};
use crate::{load, sys};

/// Entries of one call: enough to make the call's own cost small, and short enough to hold up nobody.
const BATCH: usize = 1024;
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/errno-base.h>
const E2BIG: i32 = 7;
const ENOMEM: i32 = 12;

/// What the fast path knows of neighbours, connections or rules, for their owner. Any thread may use it at any time.
#[derive(Debug)]
pub struct Cache<K, V> {
    name: &'static str,
    map: MapHandle,
    entries: PhantomData<(K, V)>,
}

impl<K, V> Cache<K, V> {
    /// Of a map whose keys and values have the layout of these.
    pub(super) fn new(name: &'static str, map: MapHandle) -> Self {
        Self {
            name,
            map,
            entries: PhantomData,
        }
    }

    pub(super) fn map(&self) -> &MapHandle {
        &self.map
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> Error {
        let name = self.name;
        move |source| Error::map(NAME, name, operation, source)
    }
}

impl<K: Entry, V: Entry> Cache<K, V> {
    /// Puts entries in, in place of those that are there under the same keys. How many there was room for: the others are
    /// not in the cache, and may be any of them.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses it for another reason than too little room, such as
    /// `ENOMEM`: it has no memory for another entry. Some entries may be there then; after `ENOMEM`
    /// all that there was memory for.
    pub fn put(&self, entries: &[(K, V)]) -> Result<usize> {
        Ok(entries.len() - self.put_once(entries)?.len())
    }

    /// Does the same as [`put`](Self::put), and returns which entries there was no room for. Each
    /// entry is written at most once: packets change one as soon as it is there.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn put_once(&self, entries: &[(K, V)]) -> Result<Vec<usize>> {
        let failed = self.failed("writing");
        let (mut refused, mut out_of_memory) = (Vec::new(), None);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (number, chunk) in entries.chunks(BATCH).enumerate() {
            keys.clear();
            values.clear();
            for (key, value) in chunk {
                key.write(&mut keys);
                value.write(&mut values);
            }
            let mut done = 0;
            while done < chunk.len() {
                let (keys, values) = (&keys[done * K::LEN..], &values[done * V::LEN..]);
                let (more, mut ended) = sys::update_batch(&self.map, keys, values);
                done += more;
                if ended.as_ref().is_err_and(is_out_of_memory) {
                    // Before the kernel had the memory for it at hand.
                    let (key, value) = (&keys[more * K::LEN..][..K::LEN], &values[more * V::LEN..][..V::LEN]);
                    let put = self.map.update(key, value, MapFlags::ANY);
                    ended = put.map_err(|error| load::os_error(&error));
                    if ended.is_ok() {
                        done += 1;
                        continue;
                    }
                }
                match ended {
                    Ok(()) => break,
                    // It ended at this one, and others may be there already: they are replaced.
                    Err(error) if is_full(&error) => {
                        refused.push(number * BATCH + done);
                        done += 1;
                    }
                    Err(error) if is_out_of_memory(&error) => {
                        out_of_memory.get_or_insert(error);
                        done += 1;
                    }
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        out_of_memory.map_or(Ok(refused), |error| Err(failed(error)))
    }

    /// What is there under a key; None if nothing is.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn find(&self, key: &K) -> Result<Option<V>> {
        let mut bytes = Vec::with_capacity(K::LEN);
        key.write(&mut bytes);
        let found = self.map.lookup(&bytes, MapFlags::ANY);
        let found = found.map_err(|error| self.failed("reading")(load::os_error(&error)))?;
        Ok(found.and_then(|bytes| V::read(&bytes)))
    }

    /// Removes entries. It is no error if one is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses it.
    pub fn remove(&self, keys: &[K]) -> Result<()> {
        let failed = self.failed("writing");
        let mut bytes = Vec::new();
        let remove_one = |key: &[u8]| match self.map.delete(key).map_err(|error| load::os_error(&error)) {
            Err(error) if !is_missing(&error) => Err(failed(error)),
            _ => Ok(()),
        };
        if let [key] = keys {
            key.write(&mut bytes);
            return remove_one(&bytes);
        }
        for chunk in keys.chunks(BATCH) {
            bytes.clear();
            for key in chunk {
                key.write(&mut bytes);
            }
            let count = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            let removed = self.map.delete_batch(&bytes, count, MapFlags::ANY, MapFlags::ANY);
            match removed.map_err(|error| load::os_error(&error)) {
                Ok(()) => {}
                // It ended at the first that was missing.
                Err(error) if is_missing(&error) => {
                    bytes.chunks(K::LEN).try_for_each(remove_one)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Reads all that is there, in no order. What is changed meanwhile may be missing or come twice.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn for_each(&self, each: impl FnMut(K, V)) -> Result<()> {
        self.read_on(&mut Hand::default(), usize::MAX, each)
    }

    /// Reads so many entries, or some more, from where it ended the last time; fewer when it comes to the end, and then
    /// begins anew the next time. Entries may be changed and removed between two calls; none that stays is left out.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn read_on(&self, hand: &mut Hand, count: usize, mut each: impl FnMut(K, V)) -> Result<()> {
        let failed = self.failed("reading");
        let mut keys = vec![0; BATCH * K::LEN];
        let mut values = vec![0; BATCH * V::LEN];
        let mut read = 0;
        while read < count && !hand.0.is_at_end() {
            let found = sys::lookup_batch(&self.map, &mut hand.0, &mut keys, &mut values).map_err(&failed)?;
            for (key, value) in keys.chunks(K::LEN).zip(values.chunks(V::LEN)).take(found) {
                if let (Some(key), Some(value)) = (K::read(key), V::read(value)) {
                    each(key, value);
                }
            }
            read += found;
        }
        if hand.0.is_at_end() {
            *hand = Hand::default();
        }
        Ok(())
    }
}

/// How far a cache has been read, for [`Cache::read_on`]. One that is new begins with the first entry.
#[derive(Debug, Default)]
pub struct Hand(sys::Cursor);

impl Hand {
    /// It begins with the first entry the next time: nothing has been read yet, or all.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.0.is_at_start()
    }
}

/// Returns whether the map has as many entries as it may have.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/alloc_htab_elem>
fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(E2BIG)
}

fn is_out_of_memory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ENOMEM)
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
