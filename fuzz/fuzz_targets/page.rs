#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::page`.

bellwire_fuzz::target!(bellwire_fuzz::page::run);
