// Package foreign proves on a Kubernetes that is not ours what is said to work on any: the DaemonSet controller with
// its published rights and definitions, plan, why, rollout, the plugin of kubectl, and the page. It also shows what
// Kubernetes' own DaemonSet controller does with pods that are not of the revision it made them of. `make foreign`
// builds etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and runs it; only the nodes are simulated.
package foreign
