use std::net::IpAddr;
use std::sync::Arc;

use ringside_wire::Protocol;
use ringside_wire::tcp::Flags;

use super::*;
use crate::conntrack::{Limits, State};
use crate::flow::{About, Ends, Piece, Query, QueryKind, Quoted, Segment};
use crate::policy::{Denied, Direction, GroupId, Remote, Rule, Service};

mod bench;
mod brief;
mod handshake;
mod matrix;
mod model;
mod moving;
mod peers;
mod reference;
mod room;
mod said;
mod tcp;
mod threads;

use bench::{Bench, SECOND, few};
