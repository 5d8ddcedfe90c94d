#!/usr/bin/perl
# Writes a training corpus of plain English: the prose paragraphs of Perl's
# manual (Debian package perl-doc), in the order of the files' names.
#   corpus.pl OUTPUT
# Headings, code blocks, item labels and formatting codes are left out, so are
# pages that are not English, tables of contents and repeated paragraphs.
use strict;
use warnings;
use Cwd 'realpath';

package Prose;
use parent 'Pod::Simple::Methody';

sub start_Para { my $self = shift; $self->{paragraph} = ''; return }
sub handle_text { my ($self, $text) = @_; $self->{paragraph} .= $text if defined $self->{paragraph}; return }

sub end_Para {
    my $self = shift;
    my $text = delete $self->{paragraph};
    $text =~ s/\s+/ /g;
    $text =~ s/^ | $//g;
    my $letters = () = $text =~ /[A-Za-z ]/g;
    return if length($text) < 80 || $letters < 0.85 * length($text);
    push @{ $self->{paragraphs} }, $text;
    return;
}

package main;

die "usage: corpus.pl OUTPUT\n" if @ARGV != 1;
my $output = $ARGV[0];
my %skip = map { $_ => 1 } qw(perlcn perljp perlko perltw perltoc);
# The folder has a second name, a link (5.36 and 5.36.0): each page once.
my %pages = map { realpath($_) => 1 } glob '/usr/share/perl/5.*/pod/*.pod';
my @files = sort grep { m{/([^/]+)\.pod$} && !$skip{$1} } keys %pages;
if (@files < 50) {
    print STDERR 'corpus: /usr/share/perl/5.*/pod holds ' . @files
        . " pages, a full perl-doc over 150: reinstall the package perl-doc and see that no"
        . " path-exclude of dpkg covers that folder\n";
    exit 2;
}

my (%seen, $bytes);
open my $out, '>:encoding(UTF-8)', "$output.part" or die "corpus: cannot write $output.part: $!\n";
for my $file (@files) {
    my $parser = Prose->new;
    $parser->nix_X_codes(1);
    $parser->no_errata_section(1);
    $parser->no_whining(1);
    $parser->parse_file($file);
    for my $text (@{ $parser->{paragraphs} || [] }) {
        next if $seen{$text}++;
        print {$out} "$text\n\n";
    }
}
close $out or die "corpus: cannot write $output.part: $!\n";
rename "$output.part", $output or die "corpus: cannot write $output: $!\n";
printf "corpus: %s, %.1f MB of %d pages\n", $output, (-s $output) / 1e6, scalar @files;
