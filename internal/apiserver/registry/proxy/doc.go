// Package proxy serves pods/proxy, services/proxy and nodes/proxy: HTTP requests and
// upgraded connections that are passed on to a port of a pod, of a ready endpoint of a
// Service, or of a node. A name in the path is NAME, NAME:PORT or SCHEME:NAME:PORT.
package proxy
