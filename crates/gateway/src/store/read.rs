//! Questions about what is committed.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use ringside_gateway_core::{TenantAddress, Vni};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags};

use super::{Row, StoreError, failed, row};
use crate::object::Statement;

/// Which objects are meant. What does not apply to a kind of object is not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filter {
    /// Only this network.
    pub vni: Option<Vni>,
    /// Only addresses in it.
    pub prefix: Option<IpNet>,
    /// Only on the host with this address.
    pub host: Option<IpAddr>,
}

impl Filter {
    /// True if an address is meant. Where it lives is not looked at.
    pub(super) fn means(&self, address: TenantAddress) -> bool {
        self.vni.is_none_or(|vni| vni == address.vni) && self.prefix.is_none_or(|prefix| prefix.contains(&address.ip))
    }
}

/// Some objects of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<O: Row> {
    /// In order.
    pub objects: Vec<O>,
    /// What comes behind this is the next part; None: nothing comes.
    pub next: Option<O::Key>,
}

/// A connection that only reads. It sees what was committed before each call.
#[derive(Debug)]
pub struct Reader {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
}

fn ip_value(ip: IpAddr) -> Value {
    Value::Blob(match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    })
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(path, flags)?;
            connection.pragma_update(None, "query_only", true)?;
            connection.busy_timeout(super::PATIENCE)?;
            Ok(connection)
        };
        let connection = open().map_err(|source| failed(path, "opening it to read", source))?;
        Ok(Self {
            connection,
            path: path.to_owned(),
        })
    }

    /// What was last said about an object: that it is so, or that it is gone; None if nothing is known.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn find<O: Row>(&self, key: O::Key) -> Result<Option<Statement<O>>, StoreError> {
        let (found, _) = self.rows::<O>(&row::select::<O>(), &key_values::<O>(key))?;
        Ok(found.into_iter().next())
    }

    /// Up to `size` objects behind one, in order.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn list<O: Row>(&self, filter: &Filter, after: Option<O::Key>, size: usize) -> Result<Page<O>, StoreError> {
        let mut conditions = vec!["deleted IS NULL".to_owned()];
        let mut values = Vec::new();
        if let Some(after) = after {
            let keys = O::KEYS.join(", ");
            let places = vec!["?"; O::KEYS.len()].join(", ");
            conditions.push(format!("({keys}) > ({places})"));
            values.extend(key_values::<O>(after));
        }
        if O::KEYS.contains(&"vni") {
            if let Some(vni) = filter.vni {
                conditions.push("vni = ?".to_owned());
                values.push(Value::Integer(vni.number().into()));
            }
            if let Some(prefix) = filter.prefix {
                // Addresses of the other family may lie in between.
                conditions.push("ip BETWEEN ? AND ? AND length(ip) = ?".to_owned());
                let bytes = if prefix.addr().is_ipv4() { 4 } else { 16 };
                values.extend([
                    ip_value(prefix.network()),
                    ip_value(prefix.broadcast()),
                    Value::Integer(bytes),
                ]);
            }
        }
        if let Some(host) = filter.host.filter(|_| O::VALUES.contains(&"host_ip")) {
            conditions.push("host_ip = ?".to_owned());
            values.push(ip_value(host));
        }
        let query = format!(
            "SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT ?",
            row::columns::<O>(),
            O::TABLE,
            conditions.join(" AND "),
            O::KEYS.join(", ")
        );
        // One more tells whether there is another part.
        values.push(Value::Integer(i64::try_from(size).unwrap_or(i64::MAX - 1) + 1));
        let (mut found, read) = self.rows::<O>(&query, &values)?;
        let more = read > size;
        found.truncate(size);
        let next = found.last().filter(|_| more).map(Statement::key);
        let objects = found.into_iter().filter_map(|statement| match statement {
            Statement::Put(object) => Some(object),
            Statement::Delete(..) => None,
        });
        Ok(Page {
            objects: objects.collect(),
            next,
        })
    }

    /// What was found, and how many rows were read: one that was damaged since the start is left out, and the next start
    /// moves it away.
    fn rows<O: Row>(&self, query: &str, values: &[Value]) -> Result<(Vec<Statement<O>>, usize), StoreError> {
        let read = || {
            let mut statement = self.connection.prepare(query)?;
            let mut rows = statement.query(rusqlite::params_from_iter(values))?;
            let (mut found, mut read) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                read += 1;
                match row::read::<O>(row) {
                    Ok((statement, _)) => found.push(statement),
                    Err(reason) => tracing::error!(table = O::TABLE, reason, "a row of the store is damaged"),
                }
            }
            Ok((found, read))
        };
        read().map_err(|source| failed(&self.path, "reading it", source))
    }
}

fn key_values<O: Row>(key: O::Key) -> Vec<Value> {
    let mut values = Vec::new();
    O::key_values(key, &mut |value: ValueRef<'_>| {
        values.push(Value::try_from(value).expect("numbers and bytes"))
    });
    values
}
