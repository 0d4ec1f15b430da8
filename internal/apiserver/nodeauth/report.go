package nodeauth

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// What a node may report of itself and of a pod, in bytes as they are encoded, and in pieces.
// What reports it is kept, sent to every watcher and looked through at each change.
const (
	maxNodeStatus   = 256 << 10
	maxNodeMetadata = 64 << 10
	maxAddresses    = 100
	maxPodStatus    = 64 << 10
	// maxContainerStatus is what the status of a pod may have for each of its containers.
	maxContainerStatus = 16 << 10
	// maxSmall is for objects that have a few lines only.
	maxSmall = 64 << 10
)

// encoded is what knows its size.
type encoded interface{ Size() int }

// checkSize refuses what a node makes larger than it may be. What somebody else has
// made so large is not the node's to mend.
func checkSize(node, what string, now, before encoded, most int) error {
	size := now.Size()
	if size <= most || before != nil && size <= before.Size() {
		return nil
	}
	return fmt.Errorf("node %q is not allowed to write %d bytes as %s, at most %d", node, size, what, most)
}

// checkNodeReport bounds what a node says of itself.
func (r *Restriction) checkNodeReport(ctx context.Context, node string, now, before *corev1.Node) error {
	if err := checkSize(node, "the status of a Node", &now.Status, &before.Status, maxNodeStatus); err != nil {
		return err
	}
	// Of annotations everybody may have 256 KiB.
	meta, metaBefore := now.ObjectMeta, before.ObjectMeta
	meta.Annotations, metaBefore.Annotations = nil, nil
	if err := checkSize(node, "the metadata of a Node", &meta, &metaBefore, maxNodeMetadata); err != nil {
		return err
	}
	if count := len(now.Status.Addresses); count > maxAddresses && count > len(before.Status.Addresses) {
		return fmt.Errorf("node %q is not allowed to report %d addresses, at most %d", node, count, maxAddresses)
	}
	for _, a := range now.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue // Nothing is sent to a name.
		}
		if !slices.Contains(before.Status.Addresses, a) && !mayHave(ip.Unmap(), clientOf(ctx), r.networks) {
			return fmt.Errorf("node %q is not allowed to report the address %s, which is of no private network and none "+
				"that it speaks from: name the networks of nodes with --node-cidr of the server", node, ip)
		}
	}
	return nil
}

// shared is the network of carriers' own machines, RFC 6598.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// mayHave reports whether a node that speaks from one address may say that another is its own:
// machines send to it what they send to nodes, and pods do so with their own addresses. Of
// IPv6 only what leads to the reader's own machine or link is refused, as nothing is routed by it.
func mayHave(ip, from netip.Addr, networks []netip.Prefix) bool {
	inside := func(n netip.Prefix) bool { return n.Contains(ip) }
	sameFamily := func(n netip.Prefix) bool { return n.Addr().Is4() == ip.Is4() }
	switch {
	case slices.ContainsFunc(networks, sameFamily):
		return slices.ContainsFunc(networks, inside)
	case ip.IsLoopback():
		return from.IsLoopback()
	case ip == from:
		return true
	case ip.Is4():
		return ip.IsPrivate() || shared.Contains(ip)
	}
	return ip.IsGlobalUnicast()
}

// checkPodReport bounds what a node says of a pod.
func checkPodReport(node string, now, before *corev1.Pod) error {
	spec := &before.Spec
	containers := len(spec.Containers) + len(spec.InitContainers) + len(spec.EphemeralContainers)
	return checkSize(node, "the status of a pod", &now.Status, &before.Status, maxPodStatus+containers*maxContainerStatus)
}

// checkSmall bounds what a node writes that has a few lines only.
func checkSmall(node string, a admission.Attributes) error {
	if a.GetOperation() == admission.Delete {
		return nil
	}
	now, ok := a.GetObject().(encoded)
	if !ok {
		return unexpected(a.GetObject())
	}
	before, _ := a.GetOldObject().(encoded)
	return checkSize(node, "a "+a.GetKind().Kind, now, before, maxSmall)
}

type clientKey struct{}

// WithClient has admission know from which address a request comes.
func WithClient(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			r = r.WithContext(context.WithValue(r.Context(), clientKey{}, at.Addr().Unmap()))
		}
		handler.ServeHTTP(w, r)
	})
}

// clientOf is the address from which a request comes, the zero one if that is not known.
func clientOf(ctx context.Context) netip.Addr {
	at, _ := ctx.Value(clientKey{}).(netip.Addr)
	return at
}
