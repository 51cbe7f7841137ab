/* SPDX-License-Identifier: Apache-2.0 */
#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static bool is_terminal; /* standard output is one */
static bool is_window;   /* it also knows ANSI sequences */
static bool has_keys;    /* standard input is a terminal too, and is read key by key */
static struct termios before;
static volatile sig_atomic_t is_over;

static void end(int signal)
{
    (void)signal;
    is_over = 1;
}

void screen_open(void)
{
    struct sigaction action = {.sa_handler = end};

    /* Without SA_RESTART, so that a signal ends poll(). */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    const char *type = getenv("TERM");
    is_terminal = isatty(STDOUT_FILENO) == 1;
    is_window = is_terminal && type != NULL && type[0] != '\0' && strcmp(type, "dumb") != 0;
    has_keys = is_terminal && tcgetattr(STDIN_FILENO, &before) == 0;
    if (has_keys) {
        struct termios keys = before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        has_keys = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
    }
    if (is_window)
        fputs("\033[?1049h\033[?25l", stdout); /* the alternate screen, without a cursor */
}

void screen_close(void)
{
    if (is_window)
        fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    is_terminal = is_window = has_keys = false;
}

static struct winsize get_size(void)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    return size;
}

size_t screen_columns(void) { return is_terminal ? get_size().ws_col : SIZE_MAX; }

/* Print the first `length` bytes; if they are more than `columns` characters, an ellipsis. */
static void print_line(const char *text, size_t length, size_t columns)
{
    static const char ellipsis[] = "...";
    size_t characters = 0, kept = 0, room = columns - (sizeof ellipsis - 1);
    for (size_t i = 0; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80 && characters++ == room)
            kept = i;
    }
    if (characters <= columns)
        printf("%.*s", (int)length, text);
    else if (columns > sizeof ellipsis)
        printf("%.*s%s", (int)kept, text, ellipsis);
}

static void show_in_window(const char *text)
{
    struct winsize size = get_size();
    fputs("\033[H", stdout);
    for (int row = 0; row < size.ws_row && *text != '\0'; row++) {
        size_t length = strcspn(text, "\n");
        fputs(row > 0 ? "\r\n" : "", stdout);
        print_line(text, length, size.ws_col);
        fputs("\033[K", stdout);
        text += length;
        text += *text == '\n';
    }
    fputs("\033[J", stdout);
}

void screen_show(const char *text)
{
    if (is_window)
        show_in_window(text);
    else
        printf("%s\n", text);
    fflush(stdout);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Read a key. @return whether it is q, or the input has ended */
static bool is_quit(void)
{
    char key;
    ssize_t got = read(STDIN_FILENO, &key, 1);
    return got == 0 || (got < 0 && errno != EINTR) || (got == 1 && (key == 'q' || key == 'Q'));
}

bool screen_wait(uint64_t duration_ns)
{
    uint64_t end_ns = now_ns() + duration_ns;

    for (;;) {
        uint64_t now = now_ns();
        if (is_over || now >= end_ns)
            return is_over;
        struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
        uint64_t left_ms = (end_ns - now + 999999) / 1000000;
        if (poll(&keys, 1, left_ms < 60000 ? (int)left_ms : 60000) > 0 && is_quit())
            return true;
    }
}
