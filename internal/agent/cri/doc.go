// Package cri speaks to the container runtime, through the v1 Container Runtime Interface.
//
// It turns pods and containers into the runtime's sandboxes and containers, labelled and laid out on disk as the
// kubelet does it, so that tools that know a kubelet's node know this one; and it reads back what the runtime holds in
// the small types of podworker. The labels are the only memory: whoever starts again finds every pod by its UID.
//
// Files:
//
//	/var/log/pods/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log          a container's output
//	/var/log/containers/NAME_NAMESPACE_CONTAINER-ID.log             a link to it
//	<pods>/UID/containers/CONTAINER/ATTEMPT                         the container's termination message
//	<pods>/UID/etc-hosts                                            the pod's /etc/hosts
package cri
