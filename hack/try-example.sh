#!/usr/bin/env bash
# Runs the log agent of examples/ on the cluster that `make up` started and
# shows what it does.
set -euo pipefail
kubectl=(bin/everynode kubectl)

echo
echo "Applying examples/log-agent.yaml, a DaemonSet that reads each node's own /var/log:"
"${kubectl[@]}" apply -f examples/log-agent.yaml
"${kubectl[@]}" -n kube-system rollout status daemonset/log-agent --timeout=120s
echo
"${kubectl[@]}" -n kube-system get daemonset log-agent
echo
"${kubectl[@]}" -n kube-system get pods -l name=log-agent -o wide
cat <<'END'

One container runs on every node. Try next:
  bin/everynode kubectl -n kube-system logs -l name=log-agent --prefix --tail 3
  bin/everynode kubectl -n kube-system set image daemonset/log-agent log-agent=everynode.io/demo:v2
  bin/everynode kubectl -n kube-system rollout status daemonset/log-agent
Stop the cluster and remove it with: make down
END
