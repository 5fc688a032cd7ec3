//! The relay of each thread of the server, through which its requests and streams wait for the log.

use segue_domain::log::Relay;
use segue_domain::store::Store;
use std::cell::RefCell;

thread_local! {
    static RELAY: RefCell<Option<Relay>> = const { RefCell::new(None) };
}

/// The relay of `store` on this thread. Has to be called inside of a Tokio runtime.
pub fn here(store: &Store) -> Relay {
    RELAY.with_borrow_mut(|kept| match kept {
        Some(relay) if store.log().has_relay(relay) => relay.clone(),
        _ => {
            let (relay, pass) = store.log().relay();
            tokio::spawn(pass);
            kept.insert(relay).clone()
        }
    })
}
