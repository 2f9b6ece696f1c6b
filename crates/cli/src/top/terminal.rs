//! The terminal: what it says becomes keys, and what is to be seen is drawn.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::app::{After, App};
use super::observation::Observation;
use super::observe::Observer;
use super::screen;
use crate::stop::Stop;

/// How long a key, or a signal, may wait.
const PATIENCE: Duration = Duration::from_millis(50);

/// Draws until the user has enough, or a signal comes. The terminal is as it was afterwards, also after a panic.
pub(super) fn run(observer: Observer, interval: Duration, stop: &Stop) -> Result<()> {
    // Which also has a panic give the terminal back before it is told.
    let mut terminal = ratatui::try_init().context("setting up the terminal")?;
    let restore = Restore;
    let looks = looking(observer, interval)?;
    let ended = show(&mut terminal, &looks, stop);
    drop(restore);
    ended
}

struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // There is nobody left to tell.
        _ = ratatui::try_restore();
    }
}

/// Looks, on a thread of its own: keys do not wait for it. It ends when nobody wants to hear of it any more.
fn looking(mut observer: Observer, interval: Duration) -> Result<Receiver<Observation>> {
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("looks".into()).spawn(move || {
        let mut next = Instant::now();
        while tell.send(observer.observe()).is_ok() {
            next = (next + interval).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    })?;
    Ok(told)
}

fn show(terminal: &mut DefaultTerminal, looks: &Receiver<Observation>, stop: &Stop) -> Result<()> {
    let mut app = App::default();
    let mut draw = true;
    while !stop.is_set() {
        match looks.recv_timeout(Duration::ZERO) {
            Ok(observation) => {
                app.observe(observation);
                draw = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("looking has ended by itself; please report this"),
        }
        if draw {
            terminal
                .draw(|frame| screen::draw(frame, &mut app))
                .context("drawing")?;
            draw = false;
        }
        if !event::poll(PATIENCE).context("waiting for keys")? {
            continue;
        }
        match event::read().context("reading keys")? {
            Event::Key(key) => match app.on_key(key) {
                After::Quit => return Ok(()),
                After::Draw => draw = true,
                After::Nothing => {}
            },
            Event::Resize(..) => draw = true,
            _ => {}
        }
    }
    Ok(())
}
