/* SPDX-License-Identifier: Apache-2.0 */
/* Part of os.h, whose rules hold here: descriptors, pipes, sockets, bells, timers, loops. */
#ifndef TNI_OS_CHANNEL_H
#define TNI_OS_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- descriptors ------------------------------------------------------------------------- */

/** Do nothing for -1. Keeps errno. */
void tni_os_close(int fd);
/** A second descriptor of the same open file. TN_ERR_INVALID: not open. */
int tni_os_duplicate(int fd, int *ret_fd);
/** Clear close-on-exec. TN_ERR_INVALID: not open. */
int tni_os_keep_on_exec(int fd);
/** Whether a descriptor could be made now (R3). Leaves the detail as it is. */
bool tni_os_has_descriptor_left(void);
/** Whether it can open `count` more, or as many as one message can have, if that is less. */
bool tni_os_has_descriptors_left(uint32_t count);
/** Raise this process's soft limit of descriptors to the hard one. @return the soft limit */
uint64_t tni_os_raise_descriptor_limit(void);
/** The limit that this process, and the programs that it starts, cannot exceed. */
uint64_t tni_os_hard_descriptor_limit(void);
/**
 * Wait until one of fds [count] is readable or at its end; -1 is passed over. @return its
 * index, TN_ERR_TIMED_OUT, TN_ERR_INVALID (one is not open)
 */
int tni_os_poll(const int *fds, uint32_t count, uint64_t deadline_ns);

/* ---- pipes ------------------------------------------------------------------------------- */

/** ret_fds[0] is to read from, ret_fds[1] to write to. */
int tni_os_pipe(int ret_fds[2]);
/** A number that no other pipe of the machine has; 0: not a pipe. */
uint64_t tni_os_pipe_number(int fd);
/** Read at most `size_bytes` without blocking. @return bytes, 0 at the end, TN_ERR_TIMED_OUT */
int tni_os_read(int fd, void *bytes, size_t size_bytes);
/** Write all bytes, and block for that. TN_ERR_CLOSED: no process has the other end open. */
int tni_os_write(int fd, const void *bytes, size_t size_bytes);

/* ---- messages with descriptors, between processes of this user --------------------------- */

/*
 * Connected local sockets that keep the bounds of messages. Both ends are checked to be this
 * user's.
 */

/** Make two connected sockets. */
int tni_os_pair(int ret_fds[2]);
/** Listen at a name in the runtime folder, in place of a socket that has the name. */
int tni_os_listen(const char *name, int *ret_fd);
/**
 * Never blocks. TN_ERR_TIMED_OUT: no process is connecting; TN_ERR_DENIED: a process of another
 * user was, and its connection was closed.
 */
int tni_os_accept(int fd, int *ret_fd);
/** TN_ERR_NOT_FOUND: no process listens; TN_ERR_TIMED_OUT: not accepted for 10 seconds. */
int tni_os_connect(const char *name, int *ret_fd);
/** The same in a folder of this user's that is not the runtime folder. */
int tni_os_connect_in(const char *folder, const char *name, int *ret_fd);
/** A number that no other socket of the machine has; 0: not a socket. */
uint64_t tni_os_socket_number(int fd);
/**
 * Send at least 1 byte, with at most 253 descriptors. TN_ERR_CLOSED: the other side is gone;
 * TN_ERR_TIMED_OUT: it has not read for 10 seconds.
 */
int tni_os_send(int fd, const void *bytes, size_t size_bytes, const int *fds,
                uint32_t fd_count);
/** Where a message goes. */
struct tni_os_buffer {
    void *bytes;
    size_t size_bytes;
    int *fds; /* [max_fds]: all descriptors of the message, which become the caller's */
    uint32_t max_fds;
};
/**
 * Receive one message, with all of its descriptors or none.
 * @param ret_fd_count  descriptors in `fds`; may be NULL
 * @return bytes, 0: the other side is gone; TN_ERR_TIMED_OUT; TN_ERR_INVALID: the message is
 *         longer than `size_bytes`, or has more than `max_fds` descriptors, and is lost;
 *         TN_ERR_SYSTEM: this process has no room for its descriptors, which are lost, while
 *         its bytes are in `bytes`
 */
int tni_os_receive(int fd, const struct tni_os_buffer *buffer, uint64_t deadline_ns,
                   uint32_t *ret_fd_count);

/* ---- packets with descriptors, over a socket of the program's ---------------------------- */

/*
 * The socket is connected, local, and of streams or of packets; it may block or not. The other
 * side may be any user. A packet has at most 64 KiB.
 */

/** What is sent. */
struct tni_os_message {
    const void *bytes;
    size_t size_bytes;
    const int *fds; /* [fd_count], at most 253; they stay the caller's */
    uint32_t fd_count;
};
/**
 * Send all bytes; the descriptors go with the first of them. A deadline that passes in the
 * middle of a packet leaves a stream out of step, and the detail says so.
 * @return 0, TN_ERR_CLOSED, TN_ERR_TIMED_OUT, TN_ERR_INVALID (not such a socket)
 */
int tni_os_socket_send(int fd, const struct tni_os_message *message, uint64_t deadline_ns);
/** Where a packet goes, and how its length is known. */
struct tni_os_packet {
    void *bytes;
    size_t size_bytes;
    size_t head_bytes; /* every packet begins with a head of this size, at least 1 byte */
    /* The length of the whole packet with this head; 0: this is not a head. */
    size_t (*total)(const void *head);
};
/**
 * Receive one packet: its head, then the rest, and nothing of the next packet. If `total` says
 * 0, or more than `size_bytes`, only the head is taken from a stream. With a deadline of 0 all
 * of a packet is taken from a stream, or nothing. A later deadline that passes in the middle of
 * a packet leaves a stream out of step, and the detail says so. If the packet has a descriptor
 * and the table is full, the error is TN_ERR_SYSTEM before anything is taken.
 * @param ret_fd  belongs to the caller; -1 if the packet has none
 * @return bytes, TN_ERR_CLOSED, TN_ERR_TIMED_OUT, TN_ERR_INVALID (`total` says 0 or more than
 *         `size_bytes`, or a packet has another length), TN_ERR_SYSTEM (no room for the
 *         descriptor)
 */
int tni_os_socket_receive(int fd, const struct tni_os_packet *packet, uint64_t deadline_ns,
                          int *ret_fd);

/* ---- bells ------------------------------------------------------------------------------- */

/*
 * A bell is a descriptor that any process of the machine can make readable by a number. It has
 * no file, so nothing has to be cleaned up. A ring is a hint: another user may ring, and a ring
 * may be lost.
 */

/** TN_ERR_EXISTS: the number is taken. */
int tni_os_bell_create(uint64_t number, int *ret_fd);
/** Never blocks. @return false: no process has the bell, or it could not be rung */
bool tni_os_bell_ring(uint64_t number);
/** Read all rings, so that the descriptor is not readable any more. */
void tni_os_bell_clear(int fd);

/*
 * A watch is a bell for processes of other network namespaces, where a bell has no name. Every
 * watch of a memory object is readable after a tni_os_watch_ring() of that object.
 */

/** TN_ERR_SYSTEM: none can be made, such as when the user has all inotify instances. */
int tni_os_watch_create(int memory_fd, int *ret_fd);
/** Write a byte 0 at `offset`, which no process reads. Never blocks. TN_ERR_DENIED. */
int tni_os_watch_ring(int memory_fd, uint64_t offset);
void tni_os_watch_clear(int fd);

/* ---- timers and loops -------------------------------------------------------------------- */

/** A descriptor that is readable from `deadline_ns` on. */
int tni_os_timer_create(uint64_t deadline_ns, int *ret_fd);
/** A set of descriptors to wait for, each with a tag. */
int tni_os_loop_create(int *ret_loop);
/**
 * TN_ERR_EXISTS: it is in the set; TN_ERR_INVALID: it is not open, or of a file or a folder.
 */
int tni_os_loop_add(int loop, int fd, uint64_t tag);
void tni_os_loop_remove(int loop, int fd);
/** @return how many tags [max] of readable descriptors were written, 0 at the deadline */
int tni_os_loop_wait(int loop, uint64_t *ret_tags, uint32_t max, uint64_t deadline_ns);

#endif
