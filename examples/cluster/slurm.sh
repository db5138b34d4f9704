#!/bin/bash
# Train on 4 nodes of 8 GPUs: sbatch examples/cluster/slurm.sh RECIPE [options of weft train]
#
# One torchrun per node; they meet at the first node. Slurm requeues the job when a node is lost or the time is over, and the run
# continues from its newest checkpoint, also on another number of nodes. The run folder must be on storage that all nodes share.
#SBATCH --job-name=weft
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -euo pipefail

first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=8
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # each start has its own store: the node of the last one may be lost

srun --kill-on-bad-exit=1 torchrun \
    --nnodes "$SLURM_JOB_NUM_NODES" \
    --nproc-per-node "$SLURM_GPUS_ON_NODE" \
    --rdzv-backend c10d \
    --rdzv-endpoint "$first_node:29500" \
    --rdzv-id "$SLURM_JOB_ID" \
    -m weft train --set parallel.shard=8 "$@"
