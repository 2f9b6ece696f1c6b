//! gateway.bpf.c on named packets, beside what gateway-core says of the same packets, and with its maps pinned.

mod bed;
mod captures;
mod connections;
mod corpus;
mod fixtures;
mod flows;
mod foreign;
mod lane;
mod losses;
mod pinned;
mod reasons;
mod rules;
mod settling;
mod sizes;
mod tables;
mod verifier;
mod windows;
