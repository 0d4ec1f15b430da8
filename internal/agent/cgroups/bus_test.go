package cgroups

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

// bus plays the system bus and the systemd on it, as far as cgroups go: it keeps which units there are, and makes nothing.
type bus struct {
	t *testing.T

	mu sync.Mutex // guards what is below
	// units are their properties, by name.
	units map[string]map[string]any
	// stopped are the names of units that were stopped.
	stopped []string
	conns   map[*busConn]bool
	jobs    int
	// deaf, if set, ends when systemd answers again.
	deaf chan struct{}
}

// busConn is a connection of somebody. The bus's mu guards what is sent to it, too.
type busConn struct {
	net.Conn
	signals bool
}

// theBus is one for all tests of the process: the library keeps its connection.
var theBus = sync.OnceValues(func() (*bus, error) {
	name := fmt.Sprintf("everynode-test-bus-%d", os.Getpid()) // no file
	listener, err := net.Listen("unix", "@"+name)
	if err != nil {
		return nil, err
	}
	b := &bus{units: map[string]map[string]any{}, conns: map[*busConn]bool{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go b.serve(&busConn{Conn: conn})
		}
	}()
	return b, os.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:abstract="+name)
})

// startBus begins with no units.
func startBus(t *testing.T) *bus {
	t.Helper()
	b, err := theBus()
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t, b.stopped = t, nil
	clear(b.units)
	return b
}

// property is what a unit was given last, as text.
func (b *bus) property(unit, name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.units[unit][name])
}

func (b *bus) has(unit string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.units[unit] != nil
}

func (b *bus) serve(c *busConn) {
	defer c.Close()
	in := bufio.NewReader(c)
	if !welcome(c, in) {
		return
	}
	b.mu.Lock()
	b.conns[c] = true
	b.mu.Unlock()
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		b.mu.Lock()
		deaf := b.deaf
		b.mu.Unlock()
		if deaf != nil {
			<-deaf
		}
		b.answer(c, call)
	}
}

// welcome lets anybody in.
func welcome(c net.Conn, in *bufio.Reader) bool {
	if _, err := in.ReadByte(); err != nil {
		return false
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return false
		}
		reply := "ERROR"
		switch line = strings.TrimSpace(line); {
		case line == "BEGIN":
			return true
		case line == "AUTH":
			reply = "REJECTED EXTERNAL"
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			reply = "OK 00000000000000000000000000000001"
		}
		if _, err := io.WriteString(c, reply+"\r\n"); err != nil {
			return false
		}
	}
}

func (b *bus) answer(c *busConn, call *dbus.Message) {
	member, _ := call.Headers[dbus.FieldMember].Value().(string)
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(call.Serial())}}
	fail := func(name string) {
		reply.Type, reply.Body = dbus.TypeError, []any{name}
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.systemd1." + name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	done := "" // the unit of a job that is done
	switch member {
	case "Hello":
		reply.Body = []any{":1.1"}
	case "AddMatch":
		c.signals = true
	case "Get":
		reply.Body = []any{dbus.MakeVariant("257.1-1")} // of the manager, its version
	case "StartTransientUnit":
		unit := call.Body[0].(string)
		if b.units[unit] != nil {
			fail("UnitExists")
			break
		}
		b.units[unit], done = map[string]any{}, unit
		b.set(unit, call.Body[2])
	case "SetUnitProperties":
		if unit := call.Body[0].(string); b.units[unit] == nil {
			fail("NoSuchUnit")
		} else {
			b.set(unit, call.Body[2])
		}
	case "StopUnit":
		unit := call.Body[0].(string)
		if b.units[unit] == nil {
			fail("NoSuchUnit")
			break
		}
		delete(b.units, unit)
		b.stopped, done = append(b.stopped, unit), unit
	case "ResetFailedUnit":
		fail("NoSuchUnit")
	default:
		b.t.Errorf("systemd was asked for %s %v", member, call.Body)
		fail("NotScripted")
	}
	if done == "" {
		b.send(c, reply)
		return
	}
	b.jobs++
	job := dbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", b.jobs))
	reply.Body = []any{job}
	b.send(c, reply)
	for other := range b.conns {
		if other.signals {
			b.send(other, &dbus.Message{Type: dbus.TypeSignal, Body: []any{uint32(b.jobs), job, done, "done"}, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")), dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
				dbus.FieldMember: dbus.MakeVariant("JobRemoved"), dbus.FieldSender: dbus.MakeVariant("org.freedesktop.systemd1"),
			}})
		}
	}
}

// set takes properties, which come as pairs of a name and a value.
func (b *bus) set(unit string, properties any) {
	for _, p := range properties.([][]any) {
		b.units[unit][p[0].(string)] = p[1].(dbus.Variant).Value()
	}
}

func (b *bus) send(c *busConn, m *dbus.Message) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	if err := m.EncodeTo(c, binary.LittleEndian); err != nil {
		delete(b.conns, c)
	}
}

// hang has systemd answer nothing until what is returned is called.
func (b *bus) hang(t *testing.T) func() {
	deaf := make(chan struct{})
	b.mu.Lock()
	b.deaf = deaf
	b.mu.Unlock()
	again := sync.OnceFunc(func() {
		b.mu.Lock()
		b.deaf = nil
		b.mu.Unlock()
		close(deaf)
	})
	t.Cleanup(again)
	return again
}
