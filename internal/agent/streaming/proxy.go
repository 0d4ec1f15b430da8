package streaming

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	apiserverproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// exec answers /exec.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	streams, err := parseStreams(r.URL.Query())
	if err != nil {
		writeError(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		writeError(w, r, apierrors.NewBadRequest("command: you must specify a command"))
		return
	}
	container, err := s.running(r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	location, err := s.cfg.Runtime.Exec(r.Context(), container.ID, command, streams)
	if err != nil {
		writeError(w, r, err)
		return
	}
	passOnCommand(w, r, location, streams)
}

// attach answers /attach. Whether there is a terminal was decided when the container was made.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	streams, err := parseStreams(r.URL.Query())
	if err != nil {
		writeError(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	container, err := s.running(r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	streams.TTY = container.TTY
	if streams.TTY {
		streams.Stderr = false
	}
	location, err := s.cfg.Runtime.Attach(r.Context(), container.ID, streams)
	if err != nil {
		writeError(w, r, err)
		return
	}
	passOnCommand(w, r, location, streams)
}

// portForward answers /portForward.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	ports, err := parsePorts(r.URL.Query())
	if err != nil {
		writeError(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	sandbox, err := s.cfg.Lookup.Sandbox(r.Context(), r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		writeError(w, r, err)
		return
	}
	location, err := s.cfg.Runtime.PortForward(r.Context(), sandbox, ports)
	if err != nil {
		writeError(w, r, err)
		return
	}
	handler := passOn(location)
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		handler = apiserverproxy.NewTunnelingHandler(handler)
	}
	handler.ServeHTTP(w, r)
}

// running finds the container that a command or a terminal is for.
func (s *Server) running(r *http.Request) (Container, error) {
	name := r.PathValue("container")
	container, err := s.cfg.Lookup.Container(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), name, false)
	if err != nil {
		return Container{}, err
	}
	running, err := s.cfg.Runtime.Running(r.Context(), container.ID)
	if err != nil {
		return Container{}, err
	}
	if !running {
		return Container{}, fmt.Errorf("container not found (%q)", name)
	}
	return container, nil
}

// passOnCommand connects the caller with the runtime. Runtimes speak SPDY and the older WebSocket protocols; the newest
// WebSocket protocol, which knows how to close one stream, is translated here.
func passOnCommand(w http.ResponseWriter, r *http.Request, location *url.URL, streams Streams) {
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		apiserverproxy.NewStreamTranslatorHandler(location, runtimeTransport(), 0, apiserverproxy.Options{
			Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Tty: streams.TTY,
		}).ServeHTTP(w, r)
		return
	}
	passOn(location).ServeHTTP(w, r)
}

// passOn upgrades the connection and copies it to and from the runtime.
func passOn(location *url.URL) http.Handler {
	handler := proxy.NewUpgradeAwareHandler(location, runtimeTransport(), false, true, responder{})
	handler.UseLocationHost = true
	return handler
}

// runtimeTransport reaches the runtime on this machine, whatever proxies the environment names.
func runtimeTransport() *http.Transport { return &http.Transport{Proxy: nil} }

// responder answers when a connection can't be passed on.
type responder struct{}

// Error implements proxy.ErrorResponder.
func (responder) Error(w http.ResponseWriter, r *http.Request, err error) { writeError(w, r, err) }

// parseStreams reads which streams are wanted, by the kubelet's names or the API's.
func parseStreams(values url.Values) (Streams, error) {
	p := queryParser{values: values}
	streams := Streams{
		Stdin:  p.flag("input") || p.flag("stdin"),
		Stdout: p.flag("output") || p.flag("stdout"),
		Stderr: p.flag("error") || p.flag("stderr"),
		TTY:    p.flag("tty"),
	}
	if streams.TTY {
		streams.Stderr = false // a terminal has one output
	}
	switch {
	case p.err != nil:
		return Streams{}, p.err
	case !streams.Stdin && !streams.Stdout && !streams.Stderr:
		return Streams{}, &queryError{"stdin, stdout, stderr", "you must specify at least 1 of stdin, stdout, stderr"}
	}
	return streams, nil
}

// parsePorts reads the ports that the older WebSocket protocol needs beforehand; SPDY names them later.
func parsePorts(values url.Values) ([]int32, error) {
	var ports []int32
	for _, name := range []string{"port", "ports"} {
		for _, text := range values[name] {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil || port == 0 {
				return nil, &queryError{name, "must be a port number, got " + strconv.Quote(text)}
			}
			ports = append(ports, int32(port))
		}
	}
	return ports, nil
}
