/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What bpf/usdt.bpf.h uses of the system's header, whose machine-dependent half is no business of a BPF program. */
#ifndef BELLWIRE_LINUX_ERRNO_H
#define BELLWIRE_LINUX_ERRNO_H

#define ENOENT 2
#define ESRCH 3
#define EINVAL 22

#endif
