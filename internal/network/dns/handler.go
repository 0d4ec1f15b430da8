package dns

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/nonwriter"
	"github.com/miekg/dns"

	"github.com/everynode/everynode/internal/network/dns/zone"
)

const (
	// patience bounds the answer to one question. Clients give up after 5 seconds.
	patience = 5 * time.Second
	// maxAliases is how many external names may follow each other.
	maxAliases = 8
	// largestUDP is the largest answer in one datagram that fits every link.
	largestUDP = 1232
)

// handler answers questions.
type handler struct {
	memory *memory
	// outside answers for other names.
	outside plugin.Handler
	// door says who is answered, waiting has the places of questions that wait for outside.
	door    *doorkeeper
	waiting *places
	// echoes are this name server's own questions.
	echoes *echoes
}

// ServeDNS implements dns.Handler.
func (h *handler) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	if !h.door.lets(clientOf(w.RemoteAddr()), time.Now()) {
		return // Whoever forged the sender of a question gets nothing sent to him.
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply := h.reply(ctx, w, request)
	fit(reply, request, w.RemoteAddr().Network() == "udp")
	// The client is gone if that fails.
	_ = w.WriteMsg(reply)
}

func (h *handler) reply(ctx context.Context, w dns.ResponseWriter, request *dns.Msg) *dns.Msg {
	switch {
	case request.Opcode != dns.OpcodeQuery:
		return new(dns.Msg).SetRcode(request, dns.RcodeNotImplemented)
	case len(request.Question) != 1:
		return new(dns.Msg).SetRcode(request, dns.RcodeFormatError)
	case request.Question[0].Qclass != dns.ClassINET:
		return new(dns.Msg).SetRcode(request, dns.RcodeRefused)
	}
	q := request.Question[0]
	if h.echoes.hears(q.Name) {
		return new(dns.Msg).SetRcode(request, dns.RcodeNameError)
	}
	z, knows := h.memory.zone()
	if z.Holds(q.Name) && !knows {
		// That a name is unknown is not known yet, and would be remembered.
		return new(dns.Msg).SetRcode(request, dns.RcodeServerFailure)
	}
	answer, ok := z.Answer(q)
	if !ok {
		return h.forward(ctx, w, request)
	}
	reply := new(dns.Msg).SetRcode(request, answer.Rcode)
	reply.Authoritative, reply.RecursionAvailable = true, true
	reply.Answer, reply.Ns, reply.Extra = answer.Records, answer.Negative, answer.Extra
	if len(answer.Records) > 1 {
		records := reply.Answer
		rand.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
	}
	h.follow(ctx, z, w, reply, answer.Target)
	return reply
}

// follow adds what an alias leads to: the pods' resolvers ask one question only.
func (h *handler) follow(ctx context.Context, z *zone.Zone, w dns.ResponseWriter, reply *dns.Msg, target string) {
	for range maxAliases {
		if target == "" {
			return
		}
		question := new(dns.Msg).SetQuestion(target, reply.Question[0].Qtype)
		answer, ok := z.Answer(question.Question[0])
		if !ok {
			outside := h.forward(ctx, w, question)
			reply.Rcode, reply.Authoritative = outside.Rcode, false
			reply.Answer, reply.Ns = append(reply.Answer, outside.Answer...), append(reply.Ns, outside.Ns...)
			return
		}
		reply.Rcode = answer.Rcode
		reply.Answer, reply.Ns = append(reply.Answer, answer.Records...), append(reply.Ns, answer.Negative...)
		target = answer.Target
	}
	reply.Rcode = dns.RcodeServerFailure
}

// forward asks outside. Without an answer from there it is a server failure.
func (h *handler) forward(ctx context.Context, w dns.ResponseWriter, request *dns.Msg) *dns.Msg {
	client := clientOf(w.RemoteAddr())
	if !h.waiting.take(client) {
		return new(dns.Msg).SetRcode(request, dns.RcodeServerFailure)
	}
	defer h.waiting.give(client)
	catch := nonwriter.New(w)
	code, err := h.outside.ServeDNS(ctx, catch, request)
	if catch.Msg == nil || err != nil {
		if code == dns.RcodeSuccess {
			code = dns.RcodeServerFailure
		}
		return new(dns.Msg).SetRcode(request, code)
	}
	return catch.Msg
}

// fit makes the reply one that the client can take.
func fit(reply, request *dns.Msg, udp bool) {
	size := dns.MaxMsgSize
	if opt := request.IsEdns0(); opt != nil {
		if reply.IsEdns0() == nil {
			reply.SetEdns0(largestUDP, opt.Do())
		}
		if udp {
			size = min(max(int(opt.UDPSize()), dns.MinMsgSize), largestUDP)
		}
	} else if udp {
		size = dns.MinMsgSize
	}
	reply.Compress = true
	reply.Truncate(size)
}
