//! Rubbish for both sides, from a fuzzer or from a seed.

use std::sync::OnceLock;

use super::{
    Client, ClientOptions, FarVia, Message, SESSION_STEP, Server, ServerOptions, Start, Stop, Tally, Token, Work, frame,
};

/// One of the pieces of which rubbish is made.
fn piece(draw: &mut dyn FnMut(u64) -> u64, overheard: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = match draw(4) {
        // What was said before, mostly by the right one.
        0 if !overheard.is_empty() => overheard[index(draw, overheard.len())].clone(),
        1 => {
            let message = any_message(draw);
            let mut out = Vec::new();
            frame::put(&mut out, &serde_json::to_vec(&message).unwrap_or_default(), &[]);
            out
        }
        // A length, true or not, and bytes.
        2 => {
            let length = match draw(3) {
                0 => draw(64),
                1 => draw(8 << 10),
                _ => draw(1 << 32),
            };
            let mut out = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes().to_vec();
            out.extend((0..length.min(200)).map(|_| byte(draw)));
            out
        }
        _ => (0..draw(64)).map(|_| byte(draw)).collect(),
    };
    match draw(4) {
        0 if !bytes.is_empty() => {
            let at = index(draw, bytes.len());
            bytes[at] = byte(draw);
        }
        1 if !bytes.is_empty() => bytes.truncate(index(draw, bytes.len())),
        _ => {}
    }
    bytes
}

fn any_message(draw: &mut dyn FnMut(u64) -> u64) -> Message {
    let number = draw(u64::MAX);
    match draw(9) {
        0 => Message::Go,
        1 => Message::Stop(Stop { sent_packets: number }),
        2 => Message::Bye,
        3 => Message::Alive,
        4 => Message::Ask { number },
        5 => Message::Count { session: 7 },
        6 => Message::Tally(Tally::default()),
        7 => Message::Proof(super::Proof {
            proof: "00".repeat(index(draw, 40)),
        }),
        _ => Message::Start(Start {
            via: Some(FarVia::AfXdp),
            rate_pps: Some(number),
            frame_bytes: 1,
            feedback_ns: Some(number),
            ..Start::new(SESSION_STEP, Work::Count)
        }),
    }
}

fn index(draw: &mut dyn FnMut(u64) -> u64, len: usize) -> usize {
    usize::try_from(draw(len as u64))
        .unwrap_or(0)
        .min(len.saturating_sub(1))
}

fn byte(draw: &mut dyn FnMut(u64) -> u64) -> u8 {
    u8::try_from(draw(256)).unwrap_or(0)
}

pub(super) fn rubbish(draw: &mut dyn FnMut(u64) -> u64) {
    // The right token, for the true client that is overheard; the one who sends rubbish has none.
    let token = Token::new("nobody who sends rubbish has it").ok();
    let nonce = [3; 32];
    let mut server = Server::new(
        ServerOptions {
            token: token.clone(),
            nonce: [4; 32],
            binding: None,
        },
        0,
    );
    let mut client = Client::new(
        ClientOptions {
            token,
            nonce,
            binding: None,
        },
        0,
    );
    // Of other connections, with the same token and other nonces: what they proved there proves nothing here.
    static OTHERS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let others = OTHERS.get_or_init(|| {
        let mut others = conversation([5; 32], [7; 32]);
        others.extend(conversation([8; 32], [6; 32]));
        others
    });
    let mut overheard = others.clone();
    overheard.push(client.take_output());
    let (mut to_server, mut to_client) = (true, true);
    let mut now = 0;
    for _ in 0..=draw(12) {
        let bytes = piece(draw, &overheard);
        now += draw(3) * draw(2_000_000_000);
        if to_server && (draw(2) == 0 || !to_client) {
            to_server = server.receive(&bytes, now).is_ok() && server.tick(now).is_ok();
            assert!(!server.is_open() || !to_server, "opened by rubbish");
            overheard.push(server.take_output());
        } else if to_client {
            to_client = client.receive(&bytes, now).is_ok() && client.tick(now).is_ok();
            assert!(!client.is_open() || !to_client, "opened by rubbish");
            // What the true client proves to whoever asks is not handed on here: somebody in between could, and would only have
            // carried messages to and fro, which the tags then keep as they are.
            _ = client.take_output();
        }
    }
}

/// All that is said until both are open.
fn conversation(client_nonce: [u8; 32], server_nonce: [u8; 32]) -> Vec<Vec<u8>> {
    let token = Token::new("nobody who sends rubbish has it").ok();
    let mut client = Client::new(
        ClientOptions {
            token: token.clone(),
            nonce: client_nonce,
            binding: None,
        },
        0,
    );
    let mut server = Server::new(
        ServerOptions {
            token,
            nonce: server_nonce,
            binding: None,
        },
        0,
    );
    let mut said = Vec::new();
    for _ in 0..2 {
        let out = client.take_output();
        _ = server.receive(&out, 0);
        said.push(out);
        let out = server.take_output();
        _ = client.receive(&out, 0);
        said.push(out);
    }
    said
}
