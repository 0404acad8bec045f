#!/usr/bin/env perl
# Runs a command under a seccomp filter that answers EPERM to io_uring_setup, as the default
# profiles of container engines do.   without-io-uring.pl COMMAND [ARGUMENT...]
use strict;
use warnings;

my ($pr_set_no_new_privs, $pr_set_seccomp, $mode_filter) = (38, 22, 2);
my $io_uring_setup = 425;
my $prctl = { 'x86_64' => 157, 'aarch64' => 167 }->{ (split ' ', `uname -m`)[0] } or die "unknown machine\n";
my $filter = join '',
    pack('SCCL', 0x20, 0, 0, 0),                  # load the number of the system call
    pack('SCCL', 0x15, 0, 1, $io_uring_setup),    # another one: skip the next instruction
    pack('SCCL', 0x06, 0, 0, 0x00050001),         # refuse with EPERM
    pack('SCCL', 0x06, 0, 0, 0x7fff0000);         # allow
my $program = pack('S x6 P', length($filter) / 8, $filter);
syscall($prctl, $pr_set_no_new_privs, 1, 0, 0, 0) == 0 or die "no_new_privs: $!\n";
syscall($prctl, $pr_set_seccomp, $mode_filter, $program, 0, 0) == 0 or die "seccomp: $!\n";
exec @ARGV or die "$ARGV[0]: $!\n";
