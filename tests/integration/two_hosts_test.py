# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""The roles on two "hosts" (two_hosts.py).

Layers really leave early: on a link so slow that transfer and compute of a 2,000-token prompt
take equally long, pipelining exposes at most 3 of 30 layers' transfer, and without it about
all of it.  And what is predicted of a slow link holds.  Needs root; skipped without.
"""

from cluster import require_model, run
from two_hosts import Hosts, Roles


def layers_leave_while_later_ones_are_computed():
    require_model()
    with Hosts() as hosts:
        with Roles() as roles:
            free = roles.ask(1)
            roles.ask(2)
            kv = roles.ask(3)["kv"]
            print(f"  free link: compute {kv['compute_ms']:.0f} transfer {kv['transfer_ms']:.0f} "
                  f"exposed {kv['exposed_ms']:.1f} ms")
            speed = kv["bytes"] / (kv["compute_ms"] / 1e3)
            hosts.throttle(speed)
            slow = roles.ask(4)["kv"]
            print(f"  equal link ({speed / 1e6:.1f} MB/s): compute {slow['compute_ms']:.0f} "
                  f"transfer {slow['transfer_ms']:.0f} exposed {slow['exposed_ms']:.1f} ms")
            # What computing cannot hide, should this prompt's have gone faster than the one that the
            # link was made equal to, and the last of 30 layers.
            longer = max(slow["transfer_ms"] - slow["compute_ms"], 0)
            assert slow["exposed_ms"] <= longer + slow["transfer_ms"] * 3 / 30, slow
        with Roles(["kv_transfer.pipelining=false"]) as roles:
            off = roles.ask(5)["kv"]
            print(f"  pipelining off: compute {off['compute_ms']:.0f} "
                  f"transfer {off['transfer_ms']:.0f} exposed {off['exposed_ms']:.1f} ms")
            assert off["exposed_ms"] >= off["transfer_ms"] * 0.9, off
        assert free["kv"]["bytes"] > 0


def predictions_hold_on_a_throttled_link():
    """By the probe alone, and after the link has changed: within 25 % of what a push takes."""
    require_model()
    with Hosts() as hosts:
        hosts.throttle(40e6)
        with Roles(["kv_transfer.pipelining=false"]) as roles:
            def off(seed):
                kv = roles.ask(seed)["kv"]
                ratio = kv["transfer_ms"] / kv["predicted_ms"]
                print(f"  predicted {kv['predicted_ms']:.0f} ms, took {kv['transfer_ms']:.0f}")
                return max(ratio, 1 / ratio)

            assert off(21) < 1.25
            hosts.throttle(15e6)
            for seed in range(22, 27):
                off(seed)
            assert off(27) < 1.25


if __name__ == "__main__":
    run(layers_leave_while_later_ones_are_computed, predictions_hold_on_a_throttled_link)
