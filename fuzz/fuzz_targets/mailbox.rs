#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::mailbox`.

bellwire_fuzz::target!(bellwire_fuzz::mailbox::run);
