/* SPDX-License-Identifier: Apache-2.0 */
#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static bool is_window; /* standard output is a terminal */
static bool has_keys;  /* standard input is a terminal too, and is read key by key */
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
    is_window = isatty(STDOUT_FILENO) == 1;
    has_keys = is_window && tcgetattr(STDIN_FILENO, &before) == 0;
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
    is_window = has_keys = false;
}

static void show_in_window(const char *text, int rows, int columns)
{
    fputs("\033[H", stdout);
    for (int row = 0; row < rows && *text != '\0'; row++) {
        int length = (int)strcspn(text, "\n");
        printf("%s%.*s\033[K", row > 0 ? "\r\n" : "", length < columns ? length : columns,
               text);
        text += length;
        text += *text == '\n';
    }
    fputs("\033[J", stdout);
}

void screen_show(const char *text)
{
    struct winsize size = {0};

    if (!is_window) {
        printf("%s\n", text);
    } else {
        bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
        show_in_window(text, is_known ? size.ws_row : 24, is_known ? size.ws_col : 80);
    }
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
