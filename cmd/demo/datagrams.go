package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// serveDatagrams says who answers to every datagram at a port, until it is stopped.
// It answers from the address that was asked: on a machine with several the
// kernel's choice may be another one, which the asker does not take.
func serveDatagrams(port int) (stop func(), err error) {
	conn, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp4", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	stop = func() { _ = udp.Close() }
	raw, err := udp.SyscallConn()
	if err == nil {
		inner := raw.Control(func(fd uintptr) {
			err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_PKTINFO, 1))
		})
		err = errors.Join(err, inner)
	}
	if err != nil {
		stop()
		return nil, err
	}
	go answerDatagrams(udp)
	return stop, nil
}

func answerDatagrams(conn *net.UDPConn) {
	// What the kernel says about a datagram is an interface, the address to answer
	// from, and the one that was asked; given back, it says how to answer.
	info := make([]byte, syscall.CmsgSpace(syscall.SizeofInet4Pktinfo))
	interfaceAt := syscall.CmsgLen(0)
	buffer := make([]byte, 1<<12)
	for {
		_, n, _, from, err := conn.ReadMsgUDP(buffer, info)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(time.Millisecond) // a refusal of an earlier answer
			continue
		}
		clear(info[interfaceAt:min(interfaceAt+4, n)]) // the answer's way is the kernel's choice
		_, _, _ = conn.WriteMsgUDP([]byte(whoAnswers()), info[:n], from)
	}
}
