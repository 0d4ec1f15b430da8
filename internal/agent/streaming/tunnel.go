package streaming

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/node/tunnel"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// tunnelDial is how long a pod may take to accept a connection.
const tunnelDial = 10 * time.Second

// tunnel answers /tunnel: it leads a connection on to one of the node's own pods, and
// nowhere else, whatever else the node could reach.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), tunnel.Protocol) {
		writeError(w, r, apierrors.NewBadRequest("a tunnel needs an upgrade of the connection to "+tunnel.Protocol))
		return
	}
	address, err := netip.ParseAddr(r.PathValue("address"))
	port, portErr := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || portErr != nil || port == 0 {
		writeError(w, r, apierrors.NewBadRequest("a tunnel needs an address and a port"))
		return
	}
	if !slices.ContainsFunc(s.cfg.Pods(), func(p *corev1.Pod) bool { return hasAddress(p, address) }) {
		writeError(w, r, apierrors.NewNotFound(corev1.Resource("pods"), address.String()))
		return
	}
	dialer := net.Dialer{Timeout: tunnelDial}
	to, err := dialer.DialContext(r.Context(), "tcp", netip.AddrPortFrom(address, uint16(port)).String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, r, fmt.Errorf("take over the connection: %w", err))
		return
	}
	defer from.Close()
	if err := from.SetDeadline(time.Time{}); err != nil {
		return
	}
	if _, err := fmt.Fprintf(
		from, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", tunnel.Protocol,
	); err != nil {
		return
	}
	stop := context.AfterFunc(r.Context(), func() { from.Close(); to.Close() })
	defer stop()
	// Through the buffer the end of what one side says would end the request.
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return
	}
	join(from, io.MultiReader(bytes.NewReader(early), from), to)
}

// hasAddress says whether a pod has an address of its own, and this one.
func hasAddress(p *corev1.Pod, address netip.Addr) bool {
	if p.Spec.HostNetwork || podfacts.IsTerminal(p) {
		return false
	}
	return slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool {
		parsed, err := netip.ParseAddr(ip.IP)
		return err == nil && parsed == address
	})
}

// join copies both ways until both are done. said is what the first says.
func join(a net.Conn, said io.Reader, b net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(b, said) // The other end learns of it by the end of what it reads.
		closeWrite(b)
	}()
	_, _ = io.Copy(a, b)
	closeWrite(a)
	<-done
}

// closeWrite tells the other end that no more comes.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = c.Close()
}
