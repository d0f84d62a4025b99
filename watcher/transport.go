package watcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// limits bound how long a connection that has died goes unnoticed: under a minute, whatever it was doing.
type limits struct {
	dial      time.Duration
	handshake time.Duration
	quiet     time.Duration // then a ping is sent (RFC 9113 §6.7), and over HTTP/1.1 a TCP keep-alive
	ping      time.Duration // for the answer to it
	header    time.Duration // of a reply to begin; a watch has as long as it likes after that
	recheck   time.Duration // how often the files are read while connections are open
}

var apiLimits = limits{
	dial: 10 * time.Second, handshake: 10 * time.Second, quiet: 15 * time.Second, ping: 15 * time.Second,
	header: listTimeout, recheck: time.Second,
}

// apiTransport sends requests to the API, and to nobody else: a request, and with it the token, leaves only over a
// connection whose other side is trusted. Files are read again before every request and every second while connections
// are open. It is an http.RoundTripper.
type apiTransport struct {
	config   *rest.Config
	clientGo *transport.Config
	origin   url.URL // scheme and host of the API
	limits   limits

	mu    sync.Mutex // guards what follows
	trust *followed[trust]
	token *followed[string]           // nil: none
	pair  *followed[*tls.Certificate] // nil: none
	now   *generation                 // nil: none yet
	timer *time.Timer                 // runs while connections are open
}

// newAPITransport reads every file. The setting is the one that named those of config.
func newAPITransport(config *rest.Config, clientGo *transport.Config, setting, pinnedFile string, log *slog.Logger) (*apiTransport, error) {
	origin, err := url.Parse(config.Host)
	if err != nil {
		return nil, &SettingError{setting, fmt.Errorf("URL of the API: %w", err)}
	}
	t := &apiTransport{config: config, clientGo: clientGo, origin: url.URL{Scheme: origin.Scheme, Host: origin.Host}, limits: apiLimits}
	var faults []error
	fault := func(setting string, err error) {
		if err != nil {
			faults = append(faults, &SettingError{setting, err})
		}
	}
	if pinnedFile != "" {
		t.trust, err = newFollowed("trusted peers", []string{pinnedFile}, nil, log, func(texts [][]byte) (trust, error) {
			return parsePinned(texts[0])
		})
		fault("trusted-peer-cert-file", err)
	} else {
		t.trust, err = newFollowed("certificate authority", []string{config.CAFile}, given(config.CAData), log, func(texts [][]byte) (trust, error) {
			return parseCA(texts[0])
		})
		fault(setting, err)
	}
	if config.BearerTokenFile != "" {
		t.token, err = newFollowed("token", []string{config.BearerTokenFile}, nil, log, parseToken)
		fault(setting, err)
	} else if config.BearerToken != "" {
		t.token, err = newFollowed("token", nil, given([]byte(config.BearerToken)), log, parseToken)
		fault(setting, err)
	}
	switch {
	case len(config.CertData) > 0 && len(config.KeyData) > 0:
		t.pair, err = newFollowed("client certificate", nil, [][]byte{config.CertData, config.KeyData}, log, parseKeyPair)
		fault(setting, err)
	case config.CertFile != "" && config.KeyFile != "":
		t.pair, err = newFollowed("client certificate", []string{config.CertFile, config.KeyFile}, nil, log, parseKeyPair)
		fault(setting, err)
	case config.CertFile+config.KeyFile != "" || len(config.CertData)+len(config.KeyData) > 0:
		fault(setting, errors.New("client certificate: want it and its key both as files or both as data"))
	}
	return t, errors.Join(faults...)
}

// given is the texts to take in place of files, if there is one.
func given(text []byte) [][]byte {
	if len(text) == 0 {
		return nil
	}
	return [][]byte{text}
}

// RoundTrip sends one request.
func (t *apiTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	reply, err := t.send(req)
	if err != nil {
		if fault := t.filesFault(); fault != nil { // which may be why
			err = fmt.Errorf("%w (%w)", err, fault)
		}
		return nil, err
	}
	if location := reply.Header.Get("Location"); reply.StatusCode/100 == 3 {
		reply.Body.Close()
		return nil, fmt.Errorf("redirected (%d) to %s: redirects are not followed, want the final URL of the API",
			reply.StatusCode, redacted(location))
	}
	return reply, nil
}

// redacted returns where a URL leads, without what may be secret in it.
func redacted(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return "what is no URL"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func (t *apiTransport) send(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != t.origin.Scheme || req.URL.Host != t.origin.Host {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, fmt.Errorf("a request for %s: want only such for %s", req.URL.Host, t.origin.Host)
	}
	for {
		now, token := t.check()
		authorized := req
		if token != "" && req.Header.Get("Authorization") == "" { // a plugin may have set one
			authorized = req.Clone(req.Context())
			authorized.Header.Set("Authorization", "Bearer "+token)
		}
		reply, err := now.http.RoundTrip(authorized)
		if err == nil || req.Body != nil || req.Context().Err() != nil || !now.hasEnded() {
			return reply, err
		}
	}
}

// filesFault returns what is wrong with the files now, the gravest of it, or nil.
func (t *apiTransport) filesFault() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	fault := t.trust.fault
	if fault == nil && t.token != nil {
		fault = t.token.fault
	}
	if fault == nil && t.pair != nil {
		fault = t.pair.fault
	}
	return fault
}

// CloseIdleConnections closes connections that no request uses.
func (t *apiTransport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		t.now.http.CloseIdleConnections()
	}
}

// check reads the files and returns what a request takes. When the trust has changed, or the certificate by which the
// API knows us, all connections made before are cut, those of watches too: they go on where they were.
func (t *apiTransport) check() (*generation, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := t.trust.check()
	if t.pair != nil && t.pair.check() {
		changed = true
	}
	token := ""
	if t.token != nil {
		t.token.check()
		token = t.token.good
	}
	if changed && t.now != nil {
		t.now.end()
		t.now = nil
	}
	if t.now == nil {
		t.now = t.newGeneration()
	}
	return t.now, token
}

// watchFiles checks them from now on until no connection is open. It is called when one was opened.
func (t *apiTransport) watchFiles() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		t.timer = time.AfterFunc(t.limits.recheck, t.recheck)
	}
}

func (t *apiTransport) recheck() {
	t.check()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now.open() == 0 {
		t.timer = nil
		return
	}
	t.timer.Reset(t.limits.recheck)
}

// newGeneration returns one under the trust and the client certificate of now. The caller holds the lock.
func (t *apiTransport) newGeneration() *generation {
	config := t.trust.good.config()
	config.ServerName = t.config.ServerName
	switch holder := t.clientGo.TLS.GetCertHolder; {
	case t.pair != nil:
		pair := t.pair.good
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	case holder != nil: // a plugin
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := holder.GetCert()
			if pair == nil && err == nil {
				pair = new(tls.Certificate)
			}
			return pair, err
		}
	}
	dialer := &net.Dialer{
		Timeout:         t.limits.dial,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: t.limits.quiet, Interval: t.limits.ping / 3, Count: 3},
	}
	dial := dialer.DialContext
	if holder := t.clientGo.DialHolder; holder != nil { // a plugin closes connections when its certificate changes
		dial = holder.Dial
	}
	proxy := t.config.Proxy
	if proxy == nil {
		proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	g := &generation{conns: map[net.Conn]bool{}}
	g.http = &http.Transport{
		Proxy:           proxy,
		TLSClientConfig: config,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := g.dial(ctx, dial, network, addr)
			if err == nil {
				t.watchFiles()
			}
			return conn, err
		},
		TLSHandshakeTimeout:   t.limits.handshake,
		ResponseHeaderTimeout: t.limits.header,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    t.config.DisableCompression,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: t.limits.quiet, PingTimeout: t.limits.ping},
		Protocols:             new(http.Protocols),
	}
	g.http.Protocols.SetHTTP1(true)
	g.http.Protocols.SetHTTP2(true)
	return g
}
