"""lrmoe.MoELayer over a torch process group: two ranks under torchrun, on the CPU."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Torchrun(unittest.TestCase):
    def run_cases(self, *cases):
        torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
        done = subprocess.run(
            [*torchrun, "--nproc-per-node", "2", str(HERE / "distributed_worker.py"), *cases],
            capture_output=True,
            text=True,
            timeout=200,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-6000:])
        return done.stdout

    def test_two_ranks(self):
        """One process's outputs and gradients; replicas that even the load; a part of the pairs."""
        self.run_cases("keep_all", "replicas", "sampled")

    def test_a_lost_rank_is_named(self):
        self.assertIn("NAMED", self.run_cases("lost"))


if __name__ == "__main__":
    unittest.main()
