#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulates one CTA of a decode kernel with 64 query rows on M (docs/notes/20261201-cuda-sm90-decode.md): two warpgroups that
take tiles of 64 keys in turn, one tensor pipe that they share instruction by instruction, two tiles of nine boxes in shared
memory, copies with a latency and a rate. Prints the share of the time that the tensor cores are busy.

    tools/simulate_schedule.py [--latency CYCLES...] [--rate BYTES_A_CYCLE] [--softmax CYCLES]

A schedule is what a group does between two of its softmaxes: O its own values of the tile, X its half of the values of the
other group's tile, S<n> the next n boxes of its next scores, W wait for all values that are under way."""

import argparse
import heapq
import itertools

TILES = 60
SCORE, VALUE = 32, 128  # cycles of m64n64k16 and m64n256k16
HANDOVER = 40  # cycles from a group's weights to the other group
BOXES_OF_HALF = 4
SCHEDULES = {
    "own values, other's values, all next scores": "O W X W S9",
    "own values, all next scores, other's values under the softmax": "O W S9 X",
    "own values, half the next scores, other's values, the other half": "O W S5 X W S4",
}


class Cta:
    """Time, the tensor pipe, the boxes."""

    def __init__(self, latency, rate):
        self.latency, self.box_cycles = latency, 8192 / rate
        self.now, self.events, self.order = 0, [], itertools.count()
        self.queues, self.pipe_busy, self.turn = ([], []), False, 0
        self.waiting, self.there, self.free = {}, set(), set(range(18))
        self.copies, self.copied_until, self.weights_of = [], 0, set()

    def at(self, time, action):
        heapq.heappush(self.events, (time, next(self.order), action))

    def feed_pipe(self):
        for group in (self.turn, 1 - self.turn):
            if self.pipe_busy or not self.queues[group]:
                continue
            cycles, count = self.queues[group].pop(0)
            self.pipe_busy, self.turn = True, 1 - group
            self.at(self.now + cycles, lambda count=count: self.finish(count))

    def finish(self, count):
        count[0] -= 1
        self.pipe_busy = False
        self.feed_pipe()

    def issue(self, group, cycles, instructions, count):
        count[0] += instructions
        self.queues[group].extend([(cycles, count)] * instructions)
        self.feed_pipe()

    def copy(self):
        while self.copies and self.copies[0][1] in self.free:
            box, slot = self.copies.pop(0)
            self.free.discard(slot)
            self.copied_until = max(self.copied_until, self.now) + self.box_cycles
            self.at(self.copied_until + self.latency, lambda box=box: self.there.add(box))

    def run(self, groups):
        for group, steps in enumerate(groups):
            self.advance(group, steps)
        self.copy()
        while self.events:
            self.now, _, action = heapq.heappop(self.events)
            action()
            for group in list(self.waiting):
                steps, ready = self.waiting[group]
                if ready():
                    del self.waiting[group]
                    self.advance(group, steps)
        if self.waiting:
            raise SystemExit("this schedule waits for itself")
        return self.now

    def advance(self, group, steps):
        """Runs a group to its next wait: it yields cycles or a condition."""
        for step in steps:
            if callable(step):
                if not step():
                    self.waiting[group] = (steps, step)
                    return
            else:
                self.at(self.now + step, lambda: self.advance(group, steps))
                return


def boxes(tile):
    """In the order in which they are copied: rope, the owner's half, the other half."""
    owner = tile % 2
    return [(tile, "rope", 0)] + [(tile, half, b) for half in (owner, 1 - owner) for b in range(BOXES_OF_HALF)]


def slot(box):
    return box[0] % 2 * 9 + boxes(box[0]).index(box)


def warpgroup(cta, group, schedule, softmax):
    under_way = []  # (count of unfinished instructions, boxes to let go)

    def let_go(which):
        cta.free.update(slot(box) for box in which)
        cta.copy()

    def add_values(tile):
        count = [0]
        cta.issue(group, VALUE, 4, count)
        under_way.append((count, [(tile, group, b) for b in range(BOXES_OF_HALF)]))

    def settle():
        while under_way:
            count, which = under_way.pop(0)
            yield lambda count=count: count[0] == 0
            let_go(which)

    def score(which, count):
        for box in which:
            yield lambda box=box: box in cta.there
            cta.issue(group, SCORE, 4, count)

    def other_values(tile):
        yield lambda: tile in cta.weights_of
        yield HANDOVER
        add_values(tile)

    def soften(tile, count):
        yield lambda: count[0] == 0
        let_go([(tile, "rope", 0)])
        yield softmax

    count = [0]
    yield from score(boxes(group), count)
    if group == 1:
        yield from other_values(0)
    yield from settle()
    yield from soften(group, count)
    for tile in range(group, TILES, 2):
        cta.weights_of.add(tile)
        count, following = [0], boxes(tile + 2) if tile + 2 < TILES else []
        for step in schedule.split():
            if step == "O":
                add_values(tile)
            elif step == "W":
                yield from settle()
            elif step == "X" and tile + 1 < TILES:
                yield from other_values(tile + 1)
            elif step[0] == "S":
                size = int(step[1:])
                yield from score(following[:size], count)
                following = following[size:]
        if tile + 2 < TILES:
            yield from soften(tile + 2, count)
        yield from settle()


def busy(schedule, latency, rate, softmax):
    cta = Cta(latency, rate)
    cta.copies = [(box, slot(box)) for tile in range(TILES) for box in boxes(tile)]
    cycles = cta.run([warpgroup(cta, group, schedule, softmax) for group in range(2)])
    return TILES * (36 * SCORE + 8 * VALUE) / cycles


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=int, nargs="+", default=[700, 900, 1200, 1600])
    parser.add_argument("--rate", type=float, default=40, help="bytes a cycle that copies bring (default %(default)s)")
    parser.add_argument("--softmax", type=int, default=620, help="cycles (default %(default)s)")
    args = parser.parse_args()
    print(f"{'latency':<66}" + "".join(f"{latency:>7}" for latency in args.latency))
    for name, schedule in SCHEDULES.items():
        shares = [busy(schedule, latency, args.rate, args.softmax) for latency in args.latency]
        print(f"{name:<66}" + "".join(f"{share:>6.0%} " for share in shares))


if __name__ == "__main__":
    main()
