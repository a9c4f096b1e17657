/// A table of bad inputs, in a module of that name. Each row becomes a test, which gives the rest of the row to the check
/// that all rows of the table share.
macro_rules! rows {
    ($module:ident: $check:path { $($name:ident($($argument:expr),+ $(,)?);)+ }) => {
        mod $module {
            use super::*;

            $(
                #[test]
                fn $name() {
                    $check($($argument),+);
                }
            )+
        }
    };
}

/// The same table for memory that is wrong, and what is no memory: the check gets the fault's name and what it changes of
/// the [`Draft`].
macro_rules! bad_memory {
    ($module:ident: $check:path) => {
        rows! { $module: $check {
            without_seals(A_SEAL, |it| it.seals = SealFlags::empty());
            without_the_seal_against_shrinking(A_SEAL, |it| it.seals -= SealFlags::SHRINK);
            without_the_seal_against_growing(A_SEAL, |it| it.seals -= SealFlags::GROW);
            // Memory that changes has the one, memory that does not the other.
            without_the_seal_against_writing(A_SEAL, |it| {
                it.seals -= SealFlags::FUTURE_WRITE | SealFlags::WRITE;
            });
            without_the_seal_against_seals(A_SEAL, |it| it.seals -= SealFlags::SEAL);
            of_no_bytes(SIZE, |it| (it.size, it.sparse, it.bytes) = (0, true, Vec::new()));
            one_byte_short(SIZE, |it| it.size -= 1);
            one_byte_long(SIZE, |it| it.size += 1);
            half_as_large(SIZE, |it| it.size /= 2);
            twice_as_large(SIZE, |it| it.size *= 2);
            // A header would allocate a page.
            without_any_page(SPARSE, |it| (it.sparse, it.bytes) = (true, Vec::new()));
            that_can_only_be_written(UNREADABLE, |it| it.write_only = true);
            a_pipe(NOT_SHARED, |it| it.other = Some(impostor::pipe));
            a_unix_socket(NOT_SHARED, |it| it.other = Some(impostor::unix_socket));
            a_tcp_socket_that_lingers(NOT_SHARED, |it| it.other = Some(impostor::lingering_socket));
            a_udp_socket(NOT_SHARED, |it| it.other = Some(impostor::udp_socket));
            a_file_on_disk(NOT_SHARED, |it| it.other = Some(impostor::file_on_disk));
            a_file_on_tmpfs(A_SEAL, |it| it.other = Some(impostor::file_on_tmpfs));
            a_file_that_was_deleted(A_SEAL, |it| it.other = Some(impostor::deleted_file_on_tmpfs));
            a_directory(NOT_SHARED, |it| it.other = Some(impostor::directory));
            dev_zero(NOT_SHARED, |it| it.other = Some(impostor::dev_zero));
            dev_null(NOT_SHARED, |it| it.other = Some(impostor::dev_null));
            an_eventfd(NOT_SHARED, |it| it.other = Some(impostor::eventfd));
            an_epoll_instance(NOT_SHARED, |it| it.other = Some(impostor::epoll));
            a_pidfd(NOT_SHARED, |it| it.other = Some(impostor::pidfd));
            a_path_without_access(NOT_SHARED, |it| it.other = Some(impostor::path_only));
            huge_pages(HUGE, |it| it.other = Some(impostor::huge_pages));
            a_memfd_that_allows_no_seals(A_SEAL, |it| it.other = Some(impostor::unsealable));
        } }
    };
}

/// What the faults of memory are called in the handshake.
pub(super) mod in_handshake {
    pub(in crate::misbehaving) const A_SEAL: &str = "lacks";
    pub(in crate::misbehaving) const SIZE: &str = "bytes where";
    pub(in crate::misbehaving) const SPARSE: &str = "allocated";
    pub(in crate::misbehaving) const UNREADABLE: &str = "cannot be read";
    pub(in crate::misbehaving) const NOT_SHARED: &str = "is not shared memory";
    pub(in crate::misbehaving) const HUGE: &str = "huge pages";
}
