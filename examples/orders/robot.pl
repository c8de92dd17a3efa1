#!/usr/bin/env perl
# The robot of the warehouse: a program in another language that claims tasks over HTTP. It needs only Perl.
#
#   API=http://127.0.0.1:8000/api TOKEN=tk_... perl examples/orders/robot.pl [NAME]
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;

my $api = $ENV{API} // 'http://127.0.0.1:8000/api';
my $token = $ENV{TOKEN} // die "robot: set TOKEN to the token that the shop gave to the robot\n";
my $name = $ARGV[0] // 'robot-1';
my $http = HTTP::Tiny->new(
    timeout => 40,
    default_headers => { 'Authorization' => "Bearer $token", 'Content-Type' => 'application/json' },
);
my $stopped = 0;
$SIG{TERM} = $SIG{INT} = sub { $stopped = 1 };
$| = 1;

sub post {
    my ($path, $data) = @_;
    my $answer = $http->post("$api/$path", { content => encode_json($data) });
    return ($answer->{success}, $answer->{success} ? decode_json($answer->{content}) : $answer);
}

print "robot: $name waits for work\n";
until ($stopped) {
    my ($ok, $found) = post('queues/warehouse/claims', { worker => $name, limit => 1, lease => 30, wait => 5 });
    if (!$ok) {
        print "robot: $found->{status} $found->{content}\n" unless $stopped;
        sleep 2 unless $stopped;
        next;
    }
    for my $claim (@{ $found->{claims} }) {
        my $task = $claim->{task};
        # Here a real robot moves its arm. It sends heartbeats if that may take longer than its lease.
        my $parcel = sprintf 'P-%05d', $task->{data}{order};
        my ($done, $answer) =
            post("tasks/$task->{id}/claim/resolve", { token => $claim->{token}, result => { parcel => $parcel } });
        print $done ? "robot: packed $parcel\n" : "robot: task $task->{id} is not mine any more: $answer->{content}\n";
    }
}
print "robot: stopped\n";
