//! Objects as rows.
//!
//! A row has what names the object, what is known of it, then `version`, `deleted` (when, in seconds since 1970; NULL for
//! what is there) and `checksum`: CRC-32 of the table's name and of all values before it, each with its type and length.

use std::net::IpAddr;

use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::table::{Encapsulation, Host};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};

use super::Filter;
use crate::object::text::{RuleForm, Text as _};
use crate::object::{Group, GroupKey, Neighbor, Object, Port, Statement, text};

/// An object that has a table.
pub trait Row: Object {
    /// The table.
    const TABLE: &'static str;
    /// The columns that name it.
    const KEYS: &'static [&'static str];
    /// The columns with what is known of it.
    const VALUES: &'static [&'static str];

    /// Calls for each value that names it.
    fn key_values(key: Self::Key, each: &mut dyn FnMut(ValueRef<'_>));

    /// Calls for each value that is known of it.
    fn values(&self, each: &mut dyn FnMut(ValueRef<'_>));

    /// What holds in the place of one that is damaged, until it is put anew; it is older than any.
    fn instead(_: Self::Key) -> Option<Self> {
        None
    }

    /// True if a filter means it.
    fn is_meant(filter: &Filter, key: Self::Key) -> bool;

    /// Reads what names it.
    ///
    /// # Errors
    /// What is there cannot be.
    fn read_key(row: &rusqlite::Row<'_>) -> Result<Self::Key, String>;

    /// Reads what is known of it.
    ///
    /// # Errors
    /// What is there cannot be.
    fn read(row: &rusqlite::Row<'_>, key: Self::Key, version: u64) -> Result<Self, String>;
}

/// All columns, in order.
pub(super) fn columns<O: Row>() -> String {
    let named = O::KEYS.iter().chain(O::VALUES);
    let mut columns: Vec<&str> = named.copied().collect();
    columns.extend(["version", "deleted", "checksum"]);
    columns.join(", ")
}

/// Puts a row, if its version is higher than that of the one that is there. To delete counts more than to put in the same
/// version.
pub(super) fn upsert<O: Row>() -> String {
    let (table, keys) = (O::TABLE, O::KEYS.join(", "));
    let places = vec!["?"; O::KEYS.len() + O::VALUES.len() + 3].join(", ");
    let set = |column: &&str| format!("{column} = excluded.{column}");
    let mut sets: Vec<String> = O::VALUES.iter().map(set).collect();
    sets.extend(["version", "deleted", "checksum"].iter().map(set));
    format!(
        "INSERT INTO {table} ({}) VALUES ({places}) ON CONFLICT ({keys}) DO UPDATE SET {} \
         WHERE excluded.version > {table}.version \
         OR (excluded.version = {table}.version AND excluded.deleted IS NOT NULL AND {table}.deleted IS NULL)",
        columns::<O>(),
        sets.join(", ")
    )
}

/// Puts a row in the place of the one that is there, whatever its version.
pub(super) fn replace<O: Row>() -> String {
    let places = vec!["?"; O::KEYS.len() + O::VALUES.len() + 3].join(", ");
    format!(
        "INSERT OR REPLACE INTO {} ({}) VALUES ({places})",
        O::TABLE,
        columns::<O>()
    )
}

/// Reads a row.
pub(super) fn select<O: Row>() -> String {
    let conditions: Vec<String> = O::KEYS.iter().map(|column| format!("{column} = ?")).collect();
    format!(
        "SELECT {} FROM {} WHERE {}",
        columns::<O>(),
        O::TABLE,
        conditions.join(" AND ")
    )
}

/// What is known of an object, by [`select`]. A row that is damaged says nothing.
pub(super) fn find<O: Row>(
    select: &mut rusqlite::Statement<'_>,
    key: O::Key,
) -> rusqlite::Result<Option<Statement<O>>> {
    bind_key::<O>(select, key)?;
    let mut rows = select.raw_query();
    let found = rows.next()?.map(read::<O>);
    Ok(found.and_then(|found| match found {
        Ok((statement, _)) => Some(statement),
        Err(reason) => {
            tracing::error!(table = O::TABLE, reason, "a row of the store is damaged");
            None
        }
    }))
}

/// Whether there is a row, by [`select`].
pub(super) fn is_there<O: Row>(select: &mut rusqlite::Statement<'_>, key: O::Key) -> rusqlite::Result<bool> {
    bind_key::<O>(select, key)?;
    Ok(select.raw_query().next()?.is_some())
}

/// Removes a row.
pub(super) fn remove<O: Row>() -> String {
    let conditions: Vec<String> = O::KEYS.iter().map(|column| format!("{column} = ?")).collect();
    format!("DELETE FROM {} WHERE {}", O::TABLE, conditions.join(" AND "))
}

/// Binds the values that name a row.
pub(super) fn bind_key<O: Row>(statement: &mut rusqlite::Statement<'_>, key: O::Key) -> rusqlite::Result<()> {
    let mut at = 0;
    let mut bound = Ok(());
    O::key_values(key, &mut |value| {
        at += 1;
        if bound.is_ok() {
            bound = statement.raw_bind_parameter(at, ToSqlOutput::Borrowed(value));
        }
    });
    bound
}

/// Binds all values of a row.
pub(super) fn bind<O: Row>(
    upsert: &mut rusqlite::Statement<'_>,
    statement: &Statement<O>,
    now: i64,
) -> rusqlite::Result<()> {
    let mut sum = Checksum::of(O::TABLE);
    let mut at = 0;
    let mut bound = Ok(());
    let mut put = |value: ValueRef<'_>| {
        at += 1;
        sum.add(value);
        if bound.is_ok() {
            bound = upsert.raw_bind_parameter(at, ToSqlOutput::Borrowed(value));
        }
    };
    O::key_values(statement.key(), &mut put);
    match statement {
        Statement::Put(object) => object.values(&mut put),
        Statement::Delete(..) => O::VALUES.iter().for_each(|_| put(ValueRef::Null)),
    }
    put(ValueRef::Integer(statement.version().cast_signed()));
    put(match statement {
        Statement::Put(_) => ValueRef::Null,
        Statement::Delete(..) => ValueRef::Integer(now),
    });
    bound?;
    upsert.raw_bind_parameter(at + 1, sum.value())
}

/// Reads a row that has all columns: what it says, and when it was deleted, if it was.
///
/// # Errors
/// A text that says what is wrong with it.
pub(super) fn read<O: Row>(row: &rusqlite::Row<'_>) -> Result<(Statement<O>, Option<i64>), String> {
    let values = O::KEYS.len() + O::VALUES.len();
    let mut sum = Checksum::of(O::TABLE);
    for at in 0..values + 2 {
        sum.add(row.get_ref(at).map_err(|error| error.to_string())?);
    }
    let (noted, found): (i64, _) = (value(row, values + 2)?, sum.value());
    if noted != found {
        return Err(format!("its checksum is {found}, not {noted}"));
    }
    let version = value::<i64>(row, values)?.cast_unsigned();
    let key = O::read_key(row)?;
    let deleted: Option<i64> = value(row, values + 1)?;
    let statement = match deleted {
        Some(_) => Statement::Delete(key, version),
        None => Statement::Put(O::read(row, key, version)?),
    };
    Ok((statement, deleted))
}

/// What is summed, as one piece: many small ones would take several times as long.
struct Checksum(Vec<u8>);

impl Checksum {
    fn of(table: &str) -> Self {
        // As much as a neighbour takes.
        let mut bytes = Vec::with_capacity(160);
        bytes.extend_from_slice(table.as_bytes());
        Self(bytes)
    }

    /// Type, length, bytes: no two lists of values have the same ones.
    fn add(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.0.push(0),
            ValueRef::Integer(number) => self.part(1, &number.to_le_bytes()),
            ValueRef::Real(number) => self.part(2, &number.to_le_bytes()),
            ValueRef::Text(bytes) => self.part(3, bytes),
            ValueRef::Blob(bytes) => self.part(4, bytes),
        }
    }

    fn part(&mut self, kind: u8, bytes: &[u8]) {
        let [a, b, c, d, ..] = bytes.len().to_le_bytes();
        self.0.extend_from_slice(&[kind, a, b, c, d]);
        self.0.extend_from_slice(bytes);
    }

    fn value(&self) -> i64 {
        crc32fast::hash(&self.0).into()
    }
}

fn value<T: FromSql>(row: &rusqlite::Row<'_>, at: usize) -> Result<T, String> {
    row.get(at).map_err(|error| error.to_string())
}

fn with_ip(ip: IpAddr, each: impl FnOnce(ValueRef<'_>)) {
    match ip {
        IpAddr::V4(ip) => each(ValueRef::Blob(&ip.octets())),
        IpAddr::V6(ip) => each(ValueRef::Blob(&ip.octets())),
    }
}

fn ip(row: &rusqlite::Row<'_>, at: usize) -> Result<IpAddr, String> {
    let bytes = row.get_ref(at).map_err(|error| error.to_string())?;
    let bytes = bytes.as_blob().map_err(|error| error.to_string())?;
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| v6())
        .map_err(|_| format!("{} bytes are no IP address", bytes.len()))
}

fn mac(row: &rusqlite::Row<'_>, at: usize) -> Result<Option<MacAddr>, String> {
    value::<Option<[u8; 6]>>(row, at).map(|mac| mac.map(MacAddr))
}

fn address_values(key: TenantAddress, each: &mut dyn FnMut(ValueRef<'_>)) {
    each(ValueRef::Integer(key.vni.number().into()));
    with_ip(key.ip, each);
}

fn read_address(row: &rusqlite::Row<'_>) -> Result<TenantAddress, String> {
    let vni = value::<u32>(row, 0)?;
    let vni = Vni::new(vni).ok_or_else(|| format!("{vni} is no network"))?;
    Ok(TenantAddress::new(vni, ip(row, 1)?))
}

impl Row for Neighbor {
    const TABLE: &'static str = "neighbors";
    const KEYS: &'static [&'static str] = &["vni", "ip"];
    const VALUES: &'static [&'static str] = &["mac", "host_ip", "host_mac", "port", "encapsulation"];

    fn key_values(key: TenantAddress, each: &mut dyn FnMut(ValueRef<'_>)) {
        address_values(key, each);
    }

    fn values(&self, each: &mut dyn FnMut(ValueRef<'_>)) {
        each(ValueRef::Blob(&self.mac.0));
        with_ip(self.host.ip, &mut *each);
        match &self.host.mac {
            Some(mac) => each(ValueRef::Blob(&mac.0)),
            None => each(ValueRef::Null),
        }
        each(
            self.host
                .port
                .map_or(ValueRef::Null, |port| ValueRef::Integer(port.into())),
        );
        each(match self.host.encapsulation {
            None => ValueRef::Null,
            Some(Encapsulation::Vxlan) => ValueRef::Text(b"vxlan"),
            Some(Encapsulation::Geneve) => ValueRef::Text(b"geneve"),
        });
    }

    fn is_meant(filter: &Filter, key: TenantAddress) -> bool {
        filter.means(key)
    }

    fn read_key(row: &rusqlite::Row<'_>) -> Result<TenantAddress, String> {
        read_address(row)
    }

    fn read(row: &rusqlite::Row<'_>, address: TenantAddress, version: u64) -> Result<Self, String> {
        let encapsulation = match row.get_ref(6).map_err(|error| error.to_string())? {
            ValueRef::Null => None,
            ValueRef::Text(b"vxlan") => Some(Encapsulation::Vxlan),
            ValueRef::Text(b"geneve") => Some(Encapsulation::Geneve),
            other => return Err(format!("{other:?} is no encapsulation")),
        };
        Ok(Self {
            address,
            mac: mac(row, 2)?.ok_or("it has no MAC address")?,
            host: Host {
                ip: ip(row, 3)?,
                mac: mac(row, 4)?,
                port: value(row, 5)?,
                encapsulation,
            },
            version,
        })
    }
}

impl Row for Port {
    const TABLE: &'static str = "ports";
    const KEYS: &'static [&'static str] = &["vni", "ip"];
    /// Numbers, with a comma in between.
    const VALUES: &'static [&'static str] = &["security_groups"];

    fn key_values(key: TenantAddress, each: &mut dyn FnMut(ValueRef<'_>)) {
        address_values(key, each);
    }

    fn values(&self, each: &mut dyn FnMut(ValueRef<'_>)) {
        let groups: Vec<String> = self.groups.iter().map(|group| group.0.to_string()).collect();
        each(ValueRef::Text(groups.join(",").as_bytes()));
    }

    /// An address without a port may do anything, so that one whose rules are lost has one that allows nothing.
    fn instead(address: TenantAddress) -> Option<Self> {
        Some(Self {
            address,
            groups: Vec::new(),
            version: 0,
        })
    }

    fn is_meant(filter: &Filter, key: TenantAddress) -> bool {
        filter.means(key)
    }

    fn read_key(row: &rusqlite::Row<'_>) -> Result<TenantAddress, String> {
        read_address(row)
    }

    fn read(row: &rusqlite::Row<'_>, address: TenantAddress, version: u64) -> Result<Self, String> {
        let list: String = value(row, 2)?;
        let numbers = list.split(',').filter(|number| !number.is_empty());
        let groups = numbers.map(|number| {
            number
                .parse()
                .map(GroupId)
                .map_err(|_| format!("{number:?} is no group"))
        });
        Ok(Self {
            address,
            groups: groups.collect::<Result<_, _>>()?,
            version,
        })
    }
}

impl Row for Group {
    const TABLE: &'static str = "security_groups";
    const KEYS: &'static [&'static str] = &["id"];
    /// The rules as JSON, as in the API's text.
    const VALUES: &'static [&'static str] = &["name", "rules"];

    fn key_values(key: GroupKey, each: &mut dyn FnMut(ValueRef<'_>)) {
        each(ValueRef::Integer(key.0.0.into()));
    }

    fn values(&self, each: &mut dyn FnMut(ValueRef<'_>)) {
        each(ValueRef::Text(self.name.as_bytes()));
        let rules: Vec<RuleForm> = self.rules.iter().map(RuleForm::from).collect();
        let json = serde_json::to_string(&rules).expect("rules have no keys that are not text");
        each(ValueRef::Text(json.as_bytes()));
    }

    fn is_meant(_: &Filter, _: GroupKey) -> bool {
        true
    }

    fn read_key(row: &rusqlite::Row<'_>) -> Result<GroupKey, String> {
        value(row, 0).map(|id| GroupKey(GroupId(id)))
    }

    fn read(row: &rusqlite::Row<'_>, key: GroupKey, version: u64) -> Result<Self, String> {
        let json: String = value(row, 2)?;
        let form = text::GroupForm {
            id: key.0.0,
            name: value(row, 1)?,
            rules: serde_json::from_str(&json).map_err(|error| error.to_string())?,
            version: Some(version),
        };
        Self::from_text(&form, version)
    }
}
