/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the soak: roles, what a process does, what a run promises, what it counts. */
#ifndef TENON_TESTS_SOAK_WORDS_H
#define TENON_TESTS_SOAK_WORDS_H

#define SOAK_ROLES(X)                                                                          \
    X(PRODUCER, "producer")                                                                    \
    X(CONSUMER, "consumer")                                                                    \
    X(RELAY, "relay")                                                                          \
    X(KEEPER, "keeper of locks")                                                               \
    X(POOL, "pool owner")                                                                      \
    X(WORKER, "pool worker")                                                                   \
    X(PARENT, "parent")                                                                        \
    X(CHILD, "child of a child")                                                               \
    X(HOARDER, "hoarder")                                                                      \
    X(RECLAIMER, "reclaimer")                                                                  \
    X(VISITOR, "visitor")                                                                      \
    X(SERVER, "fork server")                                                                   \
    X(TENOND, "tenond")                                                                        \
    X(VAULT, "vault")                                                                          \
    X(UNNAMED, "starting or ending")

enum soak_role {
#define SOAK_ROLE_ENUM(name, text) SOAK_##name,
    SOAK_ROLES(SOAK_ROLE_ENUM)
#undef SOAK_ROLE_ENUM
        SOAK_ROLE_COUNT
};

#define SOAK_DEEDS(X)                                                                          \
    X(NOTHING)                                                                                 \
    X(STARTING)                                                                                \
    X(JOINING)                                                                                 \
    X(LEAVING)                                                                                 \
    X(ALLOCATING)                                                                              \
    X(PUSHING)                                                                                 \
    X(POPPING)                                                                                 \
    X(CHECKING)                                                                                \
    X(ACKNOWLEDGING)                                                                           \
    X(RETURNING)                                                                               \
    X(WAITING)                                                                                 \
    X(EXPORTING)                                                                               \
    X(IMPORTING)                                                                               \
    X(REVOKING)                                                                                \
    X(RELEASING)                                                                               \
    X(LOCKING)                                                                                 \
    X(UNLOCKING)                                                                               \
    X(AT_SEMAPHORE)                                                                            \
    X(AT_SIGNAL_UP)                                                                            \
    X(AT_SIGNAL_DOWN)                                                                          \
    X(AT_EVENT)                                                                                \
    X(AT_CONDITION)                                                                            \
    X(AT_BARRIER)                                                                              \
    X(AT_STORE)                                                                                \
    X(AT_CHANNEL)                                                                              \
    X(FORKING)                                                                                 \
    X(EXECUTING)                                                                               \
    X(AWAITING_CHILD)                                                                          \
    X(MAKING_POOL)                                                                             \
    X(SUBMITTING)                                                                              \
    X(FETCHING)                                                                                \
    X(CLOSING_POOL)                                                                            \
    X(IN_JOB)                                                                                  \
    X(RECLAIMING)                                                                              \
    X(TRIMMING)                                                                                \
    X(MAKING_OBJECT)                                                                           \
    X(PARKED)

enum soak_deed {
#define SOAK_DEED_ENUM(name) SOAK_##name,
    SOAK_DEEDS(SOAK_DEED_ENUM)
#undef SOAK_DEED_ENUM
        SOAK_DEED_COUNT
};

/* What the run promises; each promise is a test. */
#define SOAK_PROMISES(X)                                                                       \
    X(MESSAGES, every_message_is_accounted_for_by_its_queues_policy)                           \
    X(CONTENTS, every_tensor_has_the_contents_it_was_sent_with)                                \
    X(ORDER, each_producers_messages_come_in_order)                                            \
    X(TICKETS, every_ticket_is_used_revoked_expired_or_alive_as_the_ledger_says)               \
    X(JOBS, every_job_of_a_living_pool_has_one_result)                                         \
    X(CHILDREN, every_child_ends_as_it_was_told_or_as_it_was_killed)                           \
    X(LOCKS, locks_permits_and_signals_are_what_live_processes_hold)                           \
    X(STORES, every_value_of_a_store_is_whole_and_an_empty_one_has_none)                       \
    X(CHANNELS, every_message_of_a_channel_is_whole_and_none_waits_for_the_dead)               \
    X(AUDIT, the_audit_of_the_domain_finds_nothing)                                            \
    X(BLOCKS, no_block_and_no_byte_is_left_when_queues_are_empty)                              \
    X(TABLES, no_seat_ticket_or_object_is_left_in_its_table)                                   \
    X(FILES, no_file_is_left)                                                                  \
    X(DESCRIPTORS, no_descriptor_is_left_in_tenond_its_vault_or_here)                          \
    X(LIVENESS, no_process_hangs_and_none_crashes)                                             \
    X(KILLS, each_role_was_killed_at_least_once)                                               \
    X(END, nothing_is_left_at_the_end)

enum soak_promise {
#define SOAK_PROMISE_ENUM(name, sentence) SOAK_ON_##name,
    SOAK_PROMISES(SOAK_PROMISE_ENUM)
#undef SOAK_PROMISE_ENUM
        SOAK_PROMISE_COUNT
};

/* Figures that only grow. */
#define SOAK_FIGURES(X)                                                                        \
    X(KILLS, "kills")                                                                          \
    X(BURSTS, "bursts of several kills")                                                       \
    X(RECLAIMERS, "of these: while reclaiming another process")                                \
    X(TAKERS, "of these: with a message taken and not yet had")                                \
    X(WAITERS, "of these: asleep at an empty queue")                                           \
    X(STOPS, "processes stopped for a while")                                                  \
    X(STARTS, "processes started by the conductor")                                            \
    X(DEAD_STARTS, "killed before they had started")                                           \
    X(REFUSED_STARTS, "starts refused: no seat, no memory")                                    \
    X(PUSHED, "messages pushed")                                                               \
    X(REFUSED, "pushes refused: queue or memory full")                                         \
    X(CUT_PUSHES, "pushes cut short by a kill")                                                \
    X(POPPED, "messages popped")                                                               \
    X(REDELIVERED, "of these: delivered before, to a process that died or gave it back")       \
    X(ACKED, "leases acknowledged")                                                            \
    X(RETURNED, "leases given back")                                                           \
    X(DRAINED, "messages that the conductor took at audits")                                   \
    X(WENT_WITH_CONSUMER, "messages that went with a killed consumer, by policy")              \
    X(LOST_DESCRIPTORS, "messages whose memory object died with its last holder")              \
    X(TENSORS, "tensors made")                                                                 \
    X(TENSOR_BYTES, "bytes in them")                                                           \
    X(BY_ARENA, "of these: arena")                                                             \
    X(BY_DESCRIPTOR, "of these: file_descriptor")                                              \
    X(BY_FILE, "of these: file_system")                                                        \
    X(BY_WRITE_ONCE, "of these: write-once, by file_descriptor")                               \
    X(NO_ROOM, "allocations refused for want of memory")                                       \
    X(CHECKED_BYTES, "bytes checked")                                                          \
    X(EXPORTED, "tickets exported")                                                            \
    X(IMPORTED, "tickets imported")                                                            \
    X(STALE, "imports refused: used up, revoked, expired")                                     \
    X(REVOKED, "tickets revoked")                                                              \
    X(POOLS, "pools made")                                                                     \
    X(JOBS, "jobs done")                                                                       \
    X(RESTARTED, "jobs started again after a worker's death")                                  \
    X(CHILDREN, "children started by members")                                                 \
    X(LOCKS, "locks acquired")                                                                 \
    X(RECOVERED, "of these: from a dead owner")                                                \
    X(PERMITS, "permits acquired")                                                             \
    X(BARRIERS, "barriers passed")                                                             \
    X(BROKEN, "barriers broken")                                                               \
    X(VALUES_PUT, "values put into a store")                                                   \
    X(VALUES_GOT, "values got from it and checked")                                            \
    X(PUBLISHED, "messages published to channels")                                             \
    X(RECEIVED, "messages received from them and checked")                                     \
    X(DISCONNECTED, "receives of subscribers that were disconnected")                          \
    X(PEERS, "waits ended by a death")                                                         \
    X(JOINS, "visits by name")                                                                 \
    X(RECLAIMED, "seats reclaimed by members on purpose")                                      \
    X(AUDITS, "audits")

enum soak_figure {
#define SOAK_FIGURE_ENUM(name, text) SOAK_N_##name,
    SOAK_FIGURES(SOAK_FIGURE_ENUM)
#undef SOAK_FIGURE_ENUM
        SOAK_FIGURE_COUNT
};

#endif
