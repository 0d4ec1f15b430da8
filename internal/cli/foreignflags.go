package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// told is a switch that knows whether somebody has said how it should be.
type told struct{ value, said *bool }

// Set implements pflag.Value.
func (t *told) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("give true or false")
	}
	*t.value, *t.said = on, true
	return nil
}

// String implements pflag.Value.
func (t *told) String() string { return strconv.FormatBool(t.value != nil && *t.value) }

// Type implements pflag.Value.
func (*told) Type() string { return "bool" }

// foreign is a flag of kube-apiserver that sets nothing here.
type foreign struct {
	// always is the value that describes what this server does in any case; that is
	// taken, and every other refused. Empty for flags of which no value is taken.
	always string
	// why says what is so instead, and what to do.
	why string

	given string
}

// Set implements pflag.Value.
func (f *foreign) Set(text string) error {
	if f.always == "" || text != f.always && !sameWords(text, f.always) {
		return errors.New(f.why)
	}
	f.given = text
	return nil
}

// sameWords compares two lists without their order.
func sameWords(a, b string) bool {
	as, bs := strings.Split(a, ","), strings.Split(b, ",")
	slices.Sort(as)
	slices.Sort(bs)
	return slices.Equal(as, bs)
}

// String implements pflag.Value.
func (f *foreign) String() string { return f.given }

// Type implements pflag.Value.
func (*foreign) Type() string { return "string" }

// addForeignFlags has the flags of kube-apiserver that set nothing here say so, each in
// its own words. An operator who brings a command line along should not have to guess
// from "unknown flag" whether a protection is missing.
func addForeignFlags(f *pflag.FlagSet) {
	for _, name := range slices.Sorted(maps.Keys(foreignFlags)) {
		if f.Lookup(name) != nil {
			continue // this command has it
		}
		flag := foreignFlags[name]
		f.Var(&flag, name, flag.why)
		f.Lookup(name).NoOptDefVal = "true"
		_ = f.MarkHidden(name) // It fails for flags that do not exist only.
	}
}

// refusal is the sentence of a flag that was given a value that is not taken.
func refusal(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	switch invalid.GetFlag().Value.(type) {
	case *foreign, *told:
		return fmt.Errorf("--%s=%s: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return err
}

// Reasons that several flags have.
const (
	ownCertificates = "the server makes and renews its certificates itself, with a CA of the cluster's own; leave the " +
		"flag out (everynode certificates shows and replaces them)"
	noWebhookAuthn = "no webhook authenticates requests; use --authentication-config or --oidc-issuer-url for " +
		"people, and service accounts for programs"
	noWebhookAuthz = "no webhook authorizes requests; give rights by roles, and refuse by a " +
		"ValidatingAdmissionPolicy or a webhook of admission"
	callsToAgents = "agents are called with a certificate that is good for nothing else, at the address and the port " +
		"that their Node tells; leave the flag out"
	noFrontProxy = "a proxy's word for who a user is does not count; leave the flag out, and let the proxy's users show " +
		"their own credentials"
	sizesItself      = "the caches size themselves; leave the flag out"
	noEgress         = "pods and webhooks are reached through the agents of their nodes; leave the flag out"
	noEmulation      = "the server has one version of the API, its own, and emulates no other; leave the flag out"
	noPeers          = "every server has the same versions of the API, and hands no requests to others; leave the flag out"
	databaseItself   = "the server looks after its database itself; leave the flag out"
	alwaysOn         = "it is always on, and cannot be switched off; leave the flag out"
	listensElsewhere = "say it with --listen HOST:PORT, which may be given more than once (for \"everynode up\": " +
		"--api-port)"
)

// foreignFlags are the flags of kube-apiserver that set nothing here.
var foreignFlags = map[string]foreign{
	"watch-cache": {
		always: "true",
		why:    "the watch cache is " + "always on: nodes and rollouts depend on it; leave the flag out",
	},
	"watch-cache-sizes":        {why: sizesItself},
	"default-watch-cache-size": {why: sizesItself},
	"authorization-mode": {
		always: "Node,RBAC",
		why:    "who may do what is decided by the rules for nodes and by roles, and nothing else; leave the flag out",
	},
	"authorization-config":                         {why: noWebhookAuthz},
	"authorization-policy-file":                    {why: noWebhookAuthz},
	"authorization-webhook-config-file":            {why: noWebhookAuthz},
	"authorization-webhook-version":                {why: noWebhookAuthz},
	"authorization-webhook-cache-authorized-ttl":   {why: noWebhookAuthz},
	"authorization-webhook-cache-unauthorized-ttl": {why: noWebhookAuthz},
	"authentication-token-webhook-config-file":     {why: noWebhookAuthn},
	"authentication-token-webhook-version":         {why: noWebhookAuthn},
	"authentication-token-webhook-cache-ttl":       {why: noWebhookAuthn},
	"token-auth-file": {
		why: "tokens in files never end; use --authentication-config or --oidc-issuer-url for people, and service accounts " +
			"for programs",
	},
	"enable-bootstrap-token-auth": {
		always: "true",
		why:    "machines join with such tokens (everynode token create); " + alwaysOn,
	},
	"requestheader-client-ca-file":       {why: noFrontProxy},
	"requestheader-allowed-names":        {why: noFrontProxy},
	"requestheader-username-headers":     {why: noFrontProxy},
	"requestheader-group-headers":        {why: noFrontProxy},
	"requestheader-uid-headers":          {why: noFrontProxy},
	"requestheader-extra-headers-prefix": {why: noFrontProxy},
	"proxy-client-cert-file":             {why: ownCertificates},
	"proxy-client-key-file":              {why: ownCertificates},
	"client-ca-file":                     {why: ownCertificates},
	"tls-cert-file":                      {why: ownCertificates},
	"tls-private-key-file":               {why: ownCertificates},
	"tls-sni-cert-key":                   {why: ownCertificates},
	"cert-dir":                           {why: ownCertificates},
	"service-account-key-file": {
		why: "the server makes the key of tokens itself; leave the flag out (everynode certificates " +
			"rotate-service-account-key replaces it)",
	},
	"service-account-signing-key-file": {
		why: "the server makes the key of tokens itself; leave the flag out (everynode certificates " +
			"rotate-service-account-key replaces it)",
	},
	"service-account-signing-endpoint": {why: "the server signs tokens itself; leave the flag out"},
	"service-account-lookup": {
		always: "true",
		why:    "tokens end with their account and their pod; " + alwaysOn,
	},
	"service-account-extend-token-expiration": {
		always: "false",
		why:    "tokens are good for as long as they were asked for; leave the flag out",
	},
	"kubelet-certificate-authority":   {why: callsToAgents},
	"kubelet-client-certificate":      {why: callsToAgents},
	"kubelet-client-key":              {why: callsToAgents},
	"kubelet-port":                    {why: callsToAgents},
	"kubelet-read-only-port":          {why: callsToAgents},
	"kubelet-preferred-address-types": {why: callsToAgents},
	"kubelet-timeout":                 {why: callsToAgents},
	"enable-aggregator-routing": {
		always: "true",
		why:    "aggregated API servers and webhooks are reached at their endpoints; " + alwaysOn,
	},
	"aggregator-reject-forwarding-redirect": {
		always: "true",
		why:    "a server of others must not send a request with our certificate to somebody else; " + alwaysOn,
	},
	"egress-selector-config-file": {why: noEgress},
	"allow-privileged": {
		always: "true",
		why: "privileged pods are a matter of each namespace: label it with pod-security.kubernetes.io/enforce=baseline " +
			"to refuse them",
	},
	"admission-control": {why: "use --enable-admission-plugins and --disable-admission-plugins"},
	"admission-control-config-file": {
		why: "admission plugins have no files; namespaces and webhooks are configured by objects of the API. Leave the " +
			"flag out",
	},
	"bind-address":          {why: listensElsewhere},
	"secure-port":           {why: listensElsewhere},
	"insecure-port":         {always: "0", why: "nothing is served without TLS; leave the flag out"},
	"insecure-bind-address": {why: "nothing is served without TLS; leave the flag out"},
	"permit-address-sharing": {
		always: "false",
		why:    "two servers at one address would share its clients by chance; leave the flag out",
	},
	"permit-port-sharing": {
		always: "false",
		why:    "two servers at one port would share its clients by chance; leave the flag out",
	},
	"disable-http2-serving": {
		always: "false",
		why: "clients hold many watches on one connection of HTTP/2; leave the flag out, and limit them with " +
			"--http2-max-streams-per-connection",
	},
	"external-hostname":        {why: "the address is that of --advertise-address; leave the flag out"},
	"service-cluster-ip-range": {why: "say which network Services have with --service-cidr"},
	"service-node-port-range": {
		always: "30000-32767",
		why:    "node ports are 30000-32767; leave the flag out",
	},
	"kubernetes-service-node-port": {
		always: "0",
		why:    "the Service kubernetes has a cluster address alone; leave the flag out",
	},
	"apiserver-count": {why: "servers find each other; leave the flag out"},
	"endpoint-reconciler-type": {
		always: "lease",
		why:    "the endpoints of the Service kubernetes are the servers whose Lease is renewed; leave the flag out",
	},
	"enable-garbage-collector": {always: "true", why: alwaysOn},
	"enable-logs-handler": {
		always: "false",
		why:    "files of this machine are not shown; read the log of the service",
	},
	"contention-profiling": {
		always: "false",
		why:    "it is not offered; --profiling gives the other profiles",
	},
	"debug-socket-path": {
		why: "profiles are at /debug/pprof/ of the API alone, for administrators; leave the flag out",
	},
	"storage-backend": {always: "etcd3", why: "objects are kept in etcd; leave the flag out"},
	"storage-media-type": {
		always: "application/vnd.kubernetes.protobuf",
		why:    "objects are stored in the binary form where they have one; leave the flag out",
	},
	"storage-initialization-timeout": {why: databaseItself},
	"etcd-servers-overrides":         {why: "all objects are kept in one database; leave the flag out"},
	"etcd-compaction-interval":       {why: databaseItself},
	"etcd-count-metric-poll-period":  {why: databaseItself},
	"etcd-db-metric-poll-interval":   {why: databaseItself},
	"etcd-healthcheck-timeout":       {why: databaseItself},
	"etcd-readycheck-timeout":        {why: databaseItself},
	"lease-reuse-duration-seconds":   {why: databaseItself},
	"max-connection-bytes-per-sec": {
		always: "0",
		why:    "streams have no limit of their own; limit them in front of the server",
	},
	"tracing-config-file":                         {why: "traces are not sent anywhere; leave the flag out"},
	"emulated-version":                            {why: noEmulation},
	"emulation-forward-compatible":                {always: "false", why: noEmulation},
	"min-compatibility-version":                   {why: noEmulation},
	"runtime-config-emulation-forward-compatible": {always: "false", why: noEmulation},
	"peer-ca-file":                                {why: noPeers},
	"peer-advertise-ip":                           {why: noPeers},
	"peer-advertise-port":                         {why: noPeers},
	"repair-malformed-updates":                    {why: "objects are taken as they are sent; leave the flag out"},
	"show-hidden-metrics-for-version":             {why: "no metrics are hidden; leave the flag out"},
	"cloud-provider": {
		why: "it has no parts for clouds; leave the flag out, and run the cloud's own controller",
	},
	"cloud-config":  {why: "it has no parts for clouds; leave the flag out, and run the cloud's own controller"},
	"target-ram-mb": {why: sizesItself},
}
