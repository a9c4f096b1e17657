#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::broadcast`.

bellwire_fuzz::target!(bellwire_fuzz::broadcast::run);
