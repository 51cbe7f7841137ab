/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"
#include "failure.h"

#include <stdio.h>
#include <stdlib.h>

#define ACCURACY_WANTED 0.96

enum { TENSORS_A_BATCH = 2, BAR_WIDTH = 20 };

void report_add(struct report *report, struct sample sample)
{
    if (report->sample_count == report->sample_room) {
        size_t room = report->sample_room ? 2 * report->sample_room : 256;
        struct sample *samples = realloc(report->samples, room * sizeof(sample));
        if (samples == NULL)
            fail("no memory for %zu samples", room);
        report->samples = samples;
        report->sample_room = room;
    }
    if (report->sample_count > 0) {
        const struct sample *before = &report->samples[report->sample_count - 1];
        double span = sample.at_s - before->at_s;
        sample.handoffs_per_s =
            (double)(TENSORS_A_BATCH * (sample.batches - before->batches)) / span;
    }
    report->samples[report->sample_count++] = sample;
}

void report_progress(const struct report *report, double seconds)
{
    const struct sample *now = &report->samples[report->sample_count - 1];
    char bar[BAR_WIDTH + 1] = {0};
    if (report->options->is_plain) {
        if (report->sample_count > 1 && (int)now->at_s == (int)now[-1].at_s)
            return;
        printf("%5.1f s  accuracy %.4f  %8lld batches  %8.0f tensors/s\n", now->at_s,
               now->accuracy, (long long)now->batches, now->handoffs_per_s);
    } else {
        for (int cell = 0; cell < BAR_WIDTH; ++cell)
            bar[cell] = cell < (int)(BAR_WIDTH * now->at_s / seconds) ? '#' : '.';
        printf("\r[%s] %4.1f of %.0f s  accuracy %.4f  %lld batches  %.0f tensors/s\x1b[K", bar,
               now->at_s, seconds, now->accuracy, (long long)now->batches, now->handoffs_per_s);
    }
    fflush(stdout);
}

static void print_killing(const struct killing *killing)
{
    printf("killed %-10s pid %d at %.1f s; it held %llu blocks, %llu bytes,\n"
           "                 %llu of which nobody else held: %s;\n"
           "                 all was released %.1f ms after the kill\n",
           role_name(killing->role), killing->pid, killing->at_s,
           (unsigned long long)killing->blocks, (unsigned long long)killing->bytes,
           (unsigned long long)killing->own_blocks, killing->own_things, killing->released_ms);
}

/* One line, marked if it is not as it must be. @return is_good */
static bool judge(bool is_good, const char *line)
{
    printf("%s%s\n", line, is_good ? "" : "   <-- WRONG");
    return is_good;
}

static bool print_account(const struct report *report)
{
    const struct board_account *account = &report->account;
    char line[256];
    bool is_good = account->lost == 0 && account->acked_twice == 0 &&
                   account->pushed == account->acked && account->pushed == report->queue_pushed;
    snprintf(line, sizeof(line),
             "batches          %lld pushed (%lld by the queue's count), %lld acknowledged,\n"
             "                 %lld lost, %lld acknowledged twice, %lld delivered again after "
             "a death",
             (long long)account->pushed, (long long)report->queue_pushed,
             (long long)account->acked, (long long)account->lost,
             (long long)account->acked_twice, (long long)account->redelivered);
    return judge(is_good, line);
}

bool report_print(const struct report *report)
{
    char line[256];
    bool is_good = true;
    printf("\n");
    for (int32_t index = 0; index < report->killing_count; ++index)
        print_killing(&report->killings[index]);
    is_good &= print_account(report);
    snprintf(line, sizeof(line), "handed over      %lld tensors in %.1f s: %.0f a second",
             (long long)report->handoffs, report->elapsed_s,
             (double)report->handoffs / report->elapsed_s);
    judge(true, line);
    snprintf(line, sizeof(line), "audit            %lld discrepancies",
             (long long)report->discrepancies);
    is_good &= judge(report->discrepancies == 0, line);
    snprintf(line, sizeof(line), "left over        %lld blocks, %lld bytes",
             (long long)report->leaked_blocks, (long long)report->leaked_bytes);
    is_good &= judge(report->leaked_blocks == 0 && report->leaked_bytes == 0, line);
    snprintf(line, sizeof(line), "test accuracy    %.4f (at least %.2f is wanted)",
             report->accuracy, ACCURACY_WANTED);
    is_good &= judge(report->accuracy >= ACCURACY_WANTED, line);
    return is_good;
}

static void write_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; ++text) {
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", *text);
        else
            fputc(*text, file);
    }
    fputc('"', file);
}

static void write_settings(FILE *file, const struct run *run)
{
    const struct options *options = &run->options;
    fprintf(file, "{\"settings\": {\"x\": ");
    write_string(file, options->x_path);
    fprintf(file, ", \"y\": ");
    write_string(file, options->y_path);
    fprintf(file,
            ", \"samples\": %lld, \"features\": %d, \"classes\": %d, \"hidden\": %d, "
            "\"batch\": %d, "
            "\"loaders\": %d, \"trainers\": %d, \"seconds\": %g, \"rate\": %g, \"seed\": %llu, "
            "\"tenon\": \"%s\"},\n",
            (long long)(run->data.train_count + run->data.test_count), run->network.features,
            run->network.classes, run->network.hidden, options->batch, options->loaders,
            options->trainers, options->seconds, options->rate,
            (unsigned long long)options->seed, tn_version());
}

static void write_series(FILE *file, const struct report *report)
{
    fprintf(file, "\"series\": [");
    for (size_t index = 0; index < report->sample_count; ++index) {
        const struct sample *sample = &report->samples[index];
        fprintf(file,
                "%s\n  {\"at_s\": %.4f, \"accuracy\": %.6f, \"batches\": %lld, "
                "\"handoffs_per_s\": %.1f}",
                index ? "," : "", sample->at_s, sample->accuracy, (long long)sample->batches,
                sample->handoffs_per_s);
    }
    fprintf(file, "],\n");
}

static void write_killings(FILE *file, const struct report *report)
{
    fprintf(file, "\"kills\": [");
    for (int32_t index = 0; index < report->killing_count; ++index) {
        const struct killing *killing = &report->killings[index];
        fprintf(file,
                "%s\n  {\"role\": \"%s\", \"pid\": %d, \"seat\": %u, \"at_s\": %.4f, "
                "\"blocks\": %llu, \"bytes\": %llu, \"own_blocks\": %llu, \"own_bytes\": %llu, "
                "\"own_things\": \"%s\", \"released_ms\": %.3f}",
                index ? "," : "", role_name(killing->role), killing->pid, killing->seat,
                killing->at_s, (unsigned long long)killing->blocks,
                (unsigned long long)killing->bytes, (unsigned long long)killing->own_blocks,
                (unsigned long long)killing->own_bytes, killing->own_things,
                killing->released_ms);
    }
    fprintf(file, "],\n");
}

static void write_result(FILE *file, const struct report *report)
{
    const struct board_account *account = &report->account;
    fprintf(
        file,
        "\"result\": {\"accuracy\": %.6f, \"elapsed_s\": %.3f, \"handoffs\": %lld, "
        "\"handoffs_per_s\": %.1f, \"pushed\": %lld, \"queue_pushed\": %lld, \"acked\": %lld, "
        "\"lost\": %lld, \"acked_twice\": %lld, \"redelivered\": %lld, "
        "\"discrepancies\": %lld, \"leaked_blocks\": %lld, \"leaked_bytes\": %lld}}\n",
        report->accuracy, report->elapsed_s, (long long)report->handoffs,
        (double)report->handoffs / report->elapsed_s, (long long)account->pushed,
        (long long)report->queue_pushed, (long long)account->acked, (long long)account->lost,
        (long long)account->acked_twice, (long long)account->redelivered,
        (long long)report->discrepancies, (long long)report->leaked_blocks,
        (long long)report->leaked_bytes);
}

void report_write(const struct report *report, const struct run *run, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        fail("%s cannot be written", path);
    write_settings(file, run);
    write_series(file, report);
    write_killings(file, report);
    write_result(file, report);
    int is_bad = ferror(file);
    if (fclose(file) != 0 || is_bad)
        fail("%s cannot be written", path);
}

void report_fini(struct report *report)
{
    free(report->samples);
    *report = (struct report){0};
}
